"""A stream of samples is to be trained on, and nobody says how many steps."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.fragments import is_fragment
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KINDS: Final = ("sft", "dpo", "grpo", "kto", "reward", "rloo")
"""Files of TRL's scripts, which have the key."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of(*_KINDS):
        at = where(document, "dataset_streaming=true")
        if at is None or document.is_view or "max_steps" in document.unknown:
            continue
        steps = document.get("max_steps")
        if steps is not None and isinstance(steps.value, int) and steps.value > 0:
            continue
        yield Finding(
            "dataset_streaming is refused without max_steps",
            (at.label("of no known length"), *([steps.label("", primary=False)] if steps else [])),
            ("The train_dataset does not implement __len__, max_steps has to be specified",),
            "write max_steps",
            severity="warning" if steps is None and is_fragment(document) else None,
        )


RULE = Rule(
    name="stream-without-steps",
    severity="error",
    consequence="init",
    consumers=("trl", "transformers"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `Trainer.__init__`: does not implement "
            "__len__, max_steps has to be specified"
        ),
        "trl 0.19.1 to 1.16.0 scripts/utils.py `ScriptArguments`: dataset_streaming",
    ),
    check=_check,
)
