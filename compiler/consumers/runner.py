"""Runs a consumer script in a consumer's environment: `runner.py ROOT MODULE ANSWERS < QUESTIONS`.

Only the standard library is imported here, as tunec's dependencies may be missing there. ROOT is
the folder of the package `tunec`; MODULE is the dotted name of a script under it. A script holds
`VERBS`, a mapping from a verb to a function of one question. A refusal by the consumer is part of
that function's return value; an exception of the function itself is a fault of the script, reported
as such and never as a refusal.
"""

import importlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

_SHARED = "tunec.compiler.consumers.json_types"

Verbs = Mapping[str, Callable[[Any], Any]]


def load(root: Path, name: str) -> Verbs:
    """The verbs of the script `name`; also makes `tunec.compiler.consumers` importable for it.

    The packages that contain both are entered without running their code.
    """
    for inner in (name, _SHARED):
        parts = inner.split(".")
        for depth in range(1, len(parts)):
            package = ModuleType(".".join(parts[:depth]))
            package.__path__ = [str(root.joinpath(*parts[1:depth]))]
            sys.modules.setdefault(package.__name__, package)
    verbs: Verbs = importlib.import_module(name).VERBS
    return verbs


def answer(verbs: Verbs, question: dict[str, Any]) -> dict[str, Any]:
    """The answer to one question, or the traceback if the script failed."""
    try:
        return {"answer": verbs[question["verb"]](question)}
    except (Exception, SystemExit):  # noqa: BLE001  the traceback is the answer
        return {"fault": traceback.format_exc()}


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, even if the parent was killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main(root: str, name: str, answers: str) -> None:
    """Answer all questions on standard input, in order, in the file `answers`."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    questions = json.load(sys.stdin)
    verbs = load(Path(root), name)
    replies = [answer(verbs, question) for question in questions]
    Path(answers).write_text(json.dumps(replies), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
