"""A file that is of no kind that is known."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.schemas.source import Span

_OTHERS: Final = "say who reads it with --from NAME"
_OWN: Final = {
    "tunec": "it is a spec: `tunec plan` says what is wrong with it",
    "fleet": "it is a fleet: `tunec fleet` says what is wrong with it",
}
"""By the first key of tunec's own files."""


def _check(run: Run) -> Iterator[Finding]:
    for each in run.unread:
        if "model_type" in each.keys:
            continue  # a model's own config, which rules about the model read
        said = f"its keys are {quoted(each.keys[:8], 'and')}" if each.keys else "it has no keys"
        yield Finding(
            f"{each.name} is no config that tunec knows",
            (Label("not checked", Span(each.name, 1, 1, 1, 1)),),
            (said, f"known: {', '.join(run.targets)}"),
            _OWN.get(each.keys[0], _OTHERS) if each.keys else _OTHERS,
        )


RULE = Rule(
    name="unrecognised-file",
    severity="warning",
    consequence="unclear",
    consumers=("tunec",),
    sources=("compiler/lints/documents.py: by content, 60 % of the keys have to be known",),
    check=_check,
)
