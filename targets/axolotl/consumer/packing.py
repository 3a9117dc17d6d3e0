"""Axolotl's own packing. Verb: `rows`.

Its functions are plain Python that numba compiles; here they run uncompiled.
"""

import importlib.util
import sys
import types
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any


def rows(question: Mapping[str, Any]) -> int:
    """The number of bins into which `pack_group` packs `lengths` in their order."""
    import numpy as np

    lengths = np.array(question["lengths"], dtype=np.int32)
    found = _module().pack_group(lengths, 0, question["sequence"], len(lengths), question["most"])
    return len(found)


def _module() -> Any:
    for name in ("numba", "axolotl.utils.distributed", "axolotl.utils.logging"):
        sys.modules[name] = types.ModuleType(name)
    vars(sys.modules["numba"])["njit"] = lambda function: function
    vars(sys.modules["axolotl.utils.distributed"])["reduce_and_broadcast"] = None
    vars(sys.modules["axolotl.utils.logging"])["get_logger"] = lambda _: None
    place = Path(str(distribution("axolotl").locate_file("axolotl")))
    file = place / "utils" / "samplers" / "multipack.py"
    spec = importlib.util.spec_from_file_location("axolotl_packing", file)
    if spec is None or spec.loader is None:
        raise LookupError(str(file))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VERBS = {"rows": rows}
