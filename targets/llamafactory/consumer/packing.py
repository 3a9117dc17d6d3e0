"""LLaMA-Factory's own packing. Verb: `rows`."""

import importlib.util
import sys
import types
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any


def rows(question: Mapping[str, Any]) -> int:
    """The number of rows that `greedy_knapsack` makes of `lengths` for a capacity of `sequence`."""
    place = Path(str(distribution("llamafactory").locate_file("llamafactory")))
    file = place / "data" / "processor" / "processor_utils.py"
    spec = importlib.util.spec_from_file_location("llamafactory_packing", file)
    if spec is None or spec.loader is None:
        raise LookupError(str(file))
    module: types.ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return len(module.greedy_knapsack(list(question["lengths"]), question["sequence"]))


VERBS = {"rows": rows}
