"""Saving by steps with an interval of 0 saves nothing on the way."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        every, how = document.get("save_steps"), document.get("save_strategy")
        if every is None or type(every.value) not in (int, float) or every.value > 0:
            continue
        if how is not None and how.value not in ("steps", None):
            continue
        best = document.get("load_best_model_at_end")
        if best is not None and best.value is True:
            continue
        yield Finding(
            f"save_steps {every.value}: no checkpoint is written before the end",
            (every.label("never"), *([how.label("", primary=False)] if how else [])),
            ("a run that is stopped has to begin anew",),
            "write an interval, or save_strategy: no",
        )


RULE = Rule(
    name="interval-of-zero",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer_callback.py `DefaultFlowCallback.on_step_end`: "
            "state.save_steps > 0 and state.global_step % state.save_steps == 0"
        ),
    ),
    check=_check,
)
