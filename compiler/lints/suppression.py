"""Findings that are passed over: those of a baseline, and names that a spec allows."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from tunec.compiler.diagnostics.codes import is_code, known_names
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import nearest_one, nearly
from tunec.compiler.lints.index import rule_names
from tunec.schemas.source import dotted

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
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as fault:
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


_LIKE: Final = 0.8
_MOST_COMPARED: Final = 100
"""Unknown names for which a known one is looked for: more are no misspelt ones."""


def unknown_allowances(names: Iterable[str]) -> Iterator[Diagnostic]:
    """A warning for each name that nearly is a known one; a note for others.

    A policy has rules with names of its own, which are not known here.
    """
    names = tuple(names)
    known = frozenset((*known_names(), *rule_names())) if names else frozenset()
    for at, name in enumerate(name for name in names if name not in known):
        near = nearest_one(name, known) if at < _MOST_COMPARED else None
        is_near = near is not None and nearly(name, (near,), _LIKE) is not None
        yield _unknown(name, near, is_near=is_near)


def _unknown(name: str, near: str | None, *, is_near: bool) -> Diagnostic:
    return Diagnostic(
        "allowance-of-no-rule",
        "warning" if is_near else "note",
        f"`allow.{name}` does not name a rule, so it has no effect",
        (Label("no such rule", None, dotted(("allow", name))),),
        () if is_near else ("a policy may have a rule of that name",),
        f"did you mean `{near}`?" if near else "see `tunec catalog rules`",
    )
