"""Which recorded answers no question finds any more: their scripts, or the tracer, have changed.

    just record $(python -m tests.recording.stale)

A test that asks such a question asks the program for real, which only costs time: so it is told.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.recording import traces
from tests.recording.digests import digest, of_trace
from tests.recording.places import ROOT
from tests.recording.starts import ROOTS
from tests.recording.store import Answer, modules, read


def stale() -> Iterator[str]:
    """The modules of tests with an answer that is of no use here."""
    return (module for module in modules() if not all(is_found(*each) for each in _own(module)))


def _own(module: str) -> Iterable[tuple[str, str, Answer]]:
    return ((module, key, answer) for key, answer in read(module).items())


def is_found(module: str, key: str, answer: Answer) -> bool:
    """Whether its question, asked today, finds it; true of a trace by another torch."""
    first, _, _ = answer.script.partition(".")
    if first in ROOTS:
        return digest(answer.pins, answer.script, ROOTS[first], answer.question) == key
    asked = f"{answer.script} {answer.question}"
    files = {ROOT / module, *_files(first)}
    keys = {of_trace(answer.pins, each, asked) for each in files if each.is_file()}
    return answer.pins != traces.pins() or key in keys


@cache
def _files(stem: str) -> tuple[Path, ...]:
    return tuple(
        each for top in ("tests", "benchmarks") for each in (ROOT / top).rglob(f"{stem}.py")
    )


if __name__ == "__main__":
    print(*stale())
