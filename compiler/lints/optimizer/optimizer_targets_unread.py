"""Modules for a low-rank optimizer, and an optimizer that is none."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LOW_RANK: Final = ("galore_", "apollo_")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        targets, optim = document.get("optim_target_modules"), document.get("optim")
        if targets is None or targets.value in (None, [], "") or _is_open(document):
            continue
        word = "the default optimizer" if optim is None else str(optim.value)
        if not word.startswith(_LOW_RANK):
            yield Finding(
                f"{targets.path} does nothing: {word} works on all parameters alike",
                (
                    targets.label("not read"),
                    *([optim.label("", primary=False)] if optim is not None else []),
                ),
                ("GaLore and APOLLO alone are given modules",),
                "write optim: galore_adamw, or remove it",
                Fix((targets.removed(),), "safe"),
            )


def _is_open(document: Document) -> bool:
    return document.is_view or "optim" in document.unknown


RULE = Rule(
    name="optimizer-targets-unread",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 trainer.py `get_optimizer_cls_and_kwargs`, 5.6.2 to "
            "5.23.0 trainer_optimizer.py `_setup_low_rank_optimizer`: the one reader of "
            "optim_target_modules, for galore_* and apollo_*"
        ),
    ),
    check=_check,
)
