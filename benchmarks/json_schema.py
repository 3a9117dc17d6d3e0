"""The cost of checking an emitted file by its reader's JSON Schema: import and check.

tunec's own check beside `jsonschema`, and `jsonschema_rs` if it is installed. The files are those
of the README's spec; processor time, medians of alternating runs.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from packaging.version import Version
from startup import run

from tunec.compiler.driver import compile_spec
from tunec.compiler.emit import schema
from tunec.compiler.frontend.load import Loaded, load_spec
from tunec.compiler.json_check import is_valid
from tunec.compiler.target import Target
from tunec.targets.registry import TARGETS

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("tunec.compiler.json_check", "jsonschema", "jsonschema_rs")
RUNS = 15


def check_of(name: str, said: Any) -> Callable[[Any], bool]:
    """The check of a schema by one of the implementations."""
    if name == "tunec.compiler.json_check":
        return lambda values: is_valid(values, said)
    check: Callable[[Any], bool] = import_module(name).Draft202012Validator(said).is_valid
    return check


def seconds(what: Callable[[], Any]) -> float:
    start = time.process_time()
    what()
    return time.process_time() - start


def compare(target: Target, version: Version, loaded: Loaded, names: list[str]) -> None:
    """Print the time that each implementation takes for the files of one target."""
    files = compile_spec(loaded, [(target, version)]).artifacts[target.name]
    by_name = {file.name: file for file in target.files}
    for each in files:
        of_file = by_name[each.name].schema
        path = of_file(target.dialect(version)) if of_file else None
        for name in names if path else ():
            check = partial(check_of(name, schema(str(path))), each.values)
            first = seconds(check)
            later = median(seconds(check) for _ in range(200))
            print(f"{each.name}, {name}: {first * 1e6:.0f} us first, then {later * 1e6:.0f} us")


def main() -> int:
    names = [name for name in NAMES if find_spec(name)]
    empty = [run(["-c", ""]).cpu for _ in range(RUNS)]
    imports = {name: [run(["-c", f"import {name}"]).cpu for _ in range(RUNS)] for name in names}
    for name in names:
        print(f"import {name}: {(median(imports[name]) - median(empty)) * 1e3:.1f} ms")
    loaded = load_spec(ROOT / "examples/five-lines/spec.yaml")
    for name in ("deepspeed", "huggingface"):
        compare(*TARGETS.resolve(name, {}), loaded, names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
