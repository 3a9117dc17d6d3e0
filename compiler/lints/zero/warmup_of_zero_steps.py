"""A warmup of no steps in DeepSpeed's scheduler."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also


def _check(run: Run) -> Iterator[Finding]:
    for place in run.each("deepspeed", "scheduler.params.warmup_num_steps"):
        value = place.value
        if value == "auto" and _is_filled_with_none(run):
            yield Finding(
                "warmup_num_steps auto comes to 0: the trainer has no warmup",
                (place.label("filled in with 0, and refused"), *also(_said(run))),
                ("from 5.23.0 on transformers fills in 1 instead",),
                "write warmup_steps: 1, or remove the scheduler",
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or value > 0:
            continue
        yield Finding(
            f"warmup_num_steps {value} is not positive",
            (place.label("refused"),),
            ("before 0.19.6 it was raised to 2 in silence",),
            "write 1, or remove the scheduler",
            Fix((place.replaced(1),), "safe"),
        )


_KEYS: Final = ("warmup_steps", "warmup_ratio")


def _is_filled_with_none(run: Run) -> bool:
    """Whether a release that fills in what the trainer says finds no warmup there."""
    if run.runs("transformers<5.16") is not True or run.deepspeed_reader == "plain":
        return False
    values = [run.effective("trainer", key) for key in _KEYS]
    return values[0].known and all(each.value in (0, None) for each in values)


def _said(run: Run) -> Place | None:
    return run.said("trainer", *_KEYS)


RULE = Rule(
    name="warmup-of-zero-steps",
    severity="error",
    consequence="init",
    consumers=("deepspeed>=0.19.6",),
    sources=(
        (
            "deepspeed 0.19.8 runtime/lr_schedules.py: ValueError, warmup_num_steps must be a "
            "positive integer"
        ),
        (
            "transformers 5.15.1, 5.23.0 integrations/deepspeed.py `trainer_config_finalize`: "
            "args.get_warmup_steps(...), and from 5.23.0 max(1, ...) of that"
        ),
        "axolotl-ai-cloud/axolotl#3204",
    ),
    check=_check,
)
