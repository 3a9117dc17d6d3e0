"""A baseline: findings that were there before, by what they say and not by their line."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tunec.compiler.diagnostics.codes import is_code
from tunec.compiler.diagnostics.diagnostic import Diagnostic

_VERSION: Final = 1
Key = tuple[str, str, str, str]


class NotABaseline(ValueError):
    """The text is no baseline file; the message says why."""


def write_baseline(diagnostics: Iterable[Diagnostic]) -> str:
    """The file that accepts these findings, and no others like them. Hard errors stay out."""
    counted = Counter(key_of(each) for each in diagnostics if not is_code(each.id))
    names = ("name", "file", "path", "message")
    entries = [
        {**dict(zip(names, key, strict=True)), "count": n} for key, n in sorted(counted.items())
    ]
    return (
        json.dumps({"baseline": _VERSION, "findings": entries}, indent=2, ensure_ascii=False) + "\n"
    )


def read_baseline(text: str) -> "Counter[Key]":
    """How often each finding is accepted; raise NotABaseline."""
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
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        if isinstance(fault, NotABaseline):
            raise
        raise NotABaseline("it was not written by --write-baseline") from None


def without(diagnostics: Iterable[Diagnostic], baseline: "Counter[Key]") -> tuple[Diagnostic, ...]:
    """The findings that the baseline does not hold; of equal ones, those beyond its count."""
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
    """What makes a finding the same one after lines have moved."""
    first = diagnostic.primary
    file = first.span.file if first and first.span else ""
    return (diagnostic.id, file, first.path if first else "", diagnostic.message)
