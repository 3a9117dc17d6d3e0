"""A comment allows what no rule finds there."""

from collections.abc import Iterable, Iterator

from tunec.compiler.diagnostics.allow import Allowance
from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.rule import Finding, Rule


def findings(unused: Iterable[Allowance], known: Iterable[str]) -> Iterator[Finding]:
    """What is told of the allowances in files that hid nothing; `known` are all rules' names.

    Which these are is known only when every other rule has run, so that the engine calls this.
    """
    names = frozenset(known)
    for each in unused:
        if each.span is not None:
            what = "hides nothing" if each.name in names else "names no rule"
            label = Label("written here", each.span)
            yield Finding(f"`allow({each.name})` {what}", (label,), (), "remove it")


RULE = Rule(
    name="unused-allowance",
    severity="note",
    consequence="silent",
    consumers=("tunec",),
    sources=("compiler/diagnostics/allow.py `suppress`",),
    check=lambda _run: (),
)
