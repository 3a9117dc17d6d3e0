"""The findings that a project has accepted: a file of their names, places and messages."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tunec.compiler.diagnostics.codes import is_code
from tunec.compiler.diagnostics.diagnostic import Diagnostic

_VERSION: Final = 1
Key = tuple[str, str, str, str]


class NotABaseline(ValueError):
    """The text is not a baseline file; the message gives the reason."""


def write_baseline(diagnostics: Iterable[Diagnostic]) -> str:
    """The text of a file that accepts exactly these findings. Hard errors are left out."""
    counted = Counter(key_of(each) for each in diagnostics if not is_code(each.id))
    names = ("name", "file", "path", "message")
    entries = [
        {**dict(zip(names, key, strict=True)), "count": n} for key, n in sorted(counted.items())
    ]
    return (
        json.dumps({"baseline": _VERSION, "findings": entries}, indent=2, ensure_ascii=False) + "\n"
    )


def read_baseline(text: str) -> "Counter[Key]":
    """The number of times each finding is accepted; raise NotABaseline."""
    try:
        data = json.loads(text)
        if data["baseline"] != _VERSION:
            raise NotABaseline(f"it is of version {data['baseline']}, not {_VERSION}")
        return Counter(
            {
                (e["name"], e["file"], e["path"], e["message"]): int(e["count"])
                for e in data["findings"]
            }
        )
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as fault:
        if isinstance(fault, NotABaseline):
            raise
        raise NotABaseline("it was not written by --write-baseline") from None


def without(diagnostics: Iterable[Diagnostic], baseline: "Counter[Key]") -> tuple[Diagnostic, ...]:
    """The findings that are not in the baseline; of equal findings, those beyond its count."""
    left = baseline.copy()
    kept = []
    for each in diagnostics:
        key = key_of(each)
        if left[key] > 0 and not is_code(each.id):
            left[key] -= 1
        else:
            kept.append(each)
    return tuple(kept)


def key_of(diagnostic: Diagnostic) -> Key:
    """The parts of a finding that identify it after lines have moved."""
    first = diagnostic.primary
    file = first.span.file if first and first.span else ""
    return (diagnostic.id, file, first.path if first else "", diagnostic.message)
