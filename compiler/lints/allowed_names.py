"""Names in a spec's `allow` that nothing is called by."""

from collections.abc import Iterable, Iterator
from typing import Final

from tunec.compiler.diagnostics.codes import known_names
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import nearest, nearly
from tunec.compiler.lints.index import rule_names
from tunec.schemas.source import dotted

_LIKE: Final = 0.8


def unknown_allowances(names: Iterable[str]) -> Iterator[Diagnostic]:
    """A warning for each name that nearly is a known one; a note for others.

    A policy has rules with names of its own, which are not known here.
    """
    known = frozenset((*known_names(), *rule_names()))
    for name in names:
        if name not in known:
            near = next(iter(nearest(name, known)), None)
            yield _unknown(name, near, is_near=nearly(name, known, _LIKE) is not None)


def _unknown(name: str, near: str | None, *, is_near: bool) -> Diagnostic:
    return Diagnostic(
        "allowance-of-no-rule",
        "warning" if is_near else "note",
        f"`allow.{name}` does not name a rule, so it has no effect",
        (Label("no such rule", None, dotted(("allow", name))),),
        () if is_near else ("a policy may have a rule of that name",),
        f"did you mean `{near}`?" if near else "see `tunec catalog rules`",
    )
