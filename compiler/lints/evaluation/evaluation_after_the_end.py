"""The first evaluation would come after the last step."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import is_number, is_whole
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.evaluation.asked import strategy_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import Asked, total_steps


def _check(run: Run) -> Iterator[Finding]:
    total = total_steps(run)
    for document in run.of("trainer"):
        yield from _delayed(document, total)
        every, said = document.get("eval_steps"), strategy_of(document)
        if total is None or every is None or not is_whole(every.value):
            continue
        if said is None or said.value != "steps" or every.value <= total.value:
            continue
        late = run.runs("transformers>=5.6")
        yield Finding(
            f"eval_steps {every.value} of {total.value} steps in all",
            (every.label("after the last step"), total.place.label("", primary=False)),
            (
                "from 5.6 on there is one evaluation, at the end"
                if late
                else "there is no evaluation before 5.6, and one at the end from there on",
            ),
            f"write eval_steps: {max(total.value // 10, 1)}",
            sum=(Term("interval", every.value, "steps"), Term("training", total.value, "steps")),
        )


def _delayed(document: Document, total: Asked | None) -> Iterator[Finding]:
    """`eval_delay`: in steps or epochs, as the strategy goes."""
    delay, said = document.get("eval_delay"), strategy_of(document)
    if delay is None or not is_number(delay.value) or said is None:
        return
    epochs = document.get("num_train_epochs")
    last: int | float
    if said.value == "steps" and total is not None:
        last, place, unit = total.value, total.place, "steps"
    elif said.value == "epoch" and total is None and epochs and is_number(epochs.value):
        last, place, unit = epochs.value, epochs, "epochs"
    else:
        return
    if delay.value > last > 0:
        yield Finding(
            f"eval_delay {delay.value} of {last} {unit} in all",
            (delay.label("after the end"), place.label("", primary=False)),
            ("no evaluation comes before the delay is over",),
            "write a smaller eval_delay",
        )


RULE = Rule(
    name="evaluation-after-the-end",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.0.0 trainer_callback.py `DefaultFlowCallback.on_step_end`: "
            "only every eval_steps; 5.6.2 to 5.23.0: evaluate at the end if we have a step-based "
            "strategy"
        ),
    ),
    check=_check,
)
