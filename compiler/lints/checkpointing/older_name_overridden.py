"""Activation checkpointing under its older name beside the newer one, which says otherwise."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NAMES: Final = (
    ("gradient_checkpointing", "activation_checkpointing"),
    ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
)


def _check(run: Run) -> Iterator[Finding]:
    if run.runs("transformers<=5.15.1"):
        return  # of which none has the newer name
    for document in run.of("hf", *TRL):
        for older, newer in _NAMES:
            old, new = document.get(older), document.get(newer)
            if old is None or new is None or None in (old.value, new.value):
                continue
            if old.value != new.value:
                yield Finding(
                    f"{older} is overridden by {newer}",
                    (old.label("not read"), new.label("holds", primary=False)),
                    ("the older name is read where the newer one is left out",),
                    f"remove {older}",
                    Fix((old.removed(),), "safe"),
                )


RULE = Rule(
    name="older-name-overridden",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 5.23.0 training_args.py `__post_init__`: gradient_checkpointing is used "
            "where activation_checkpointing is None, and then set to it"
        ),
    ),
    check=_check,
)
