"""The rate is to follow a metric that nobody measures."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FOLLOWS: Final = ("reduce_lr_on_plateau", "greedy")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        kind = document.get("lr_scheduler_type")
        if kind is None or kind.value not in _FOLLOWS or document.is_view:
            continue
        strategy = document.get("eval_strategy") or document.get("evaluation_strategy")
        if {"eval_strategy", "evaluation_strategy"} & document.unknown:
            continue
        if strategy is None or strategy.value in ("no", False):
            yield Finding(
                f"{kind.value} without evaluation",
                (
                    kind.label("needs a metric"),
                    *([strategy.label("", primary=False)] if strategy is not None else []),
                ),
                ("eval_strategy is no unless it is written",),
                "write eval_strategy: epoch",
            )


RULE = Rule(
    name="plateau-without-evaluation",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `__post_init__`, `_validate_args`: "
            "ValueError, lr_scheduler_type reduce_lr_on_plateau requires an eval strategy"
        ),
    ),
    check=_check,
)
