"""A warmup of no steps in DeepSpeed's scheduler."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for place in run.each("deepspeed", "scheduler.params.warmup_num_steps"):
        value = place.value
        if isinstance(value, bool) or not isinstance(value, int | float) or value > 0:
            continue
        yield Finding(
            f"warmup_num_steps {value} is not positive",
            (place.label("refused"),),
            ("before 0.19.6 it was raised to 2 in silence",),
            "write 1, or remove the scheduler",
            Fix((place.replaced(1),), "safe"),
        )


RULE = Rule(
    name="warmup-of-zero-steps",
    severity="error",
    consequence="init",
    consumers=("deepspeed>=0.19.6",),
    sources=(
        (
            "deepspeed 0.19.8 runtime/lr_schedules.py: ValueError, warmup_num_steps must be a "
            "positive "
            "integer; transformers 5.23.0 integrations/deepspeed.py `trainer_config_finalize`, "
            "comment"
        ),
        "axolotl-ai-cloud/axolotl#3204",
    ),
    check=_check,
)
