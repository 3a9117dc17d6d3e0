"""The first evaluation would come after the last step."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.evaluation.asked import strategy_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import total_steps


def _check(run: Run) -> Iterator[Finding]:
    total = total_steps(run)
    for document in run.of("trainer"):
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


RULE = Rule(
    name="evaluation-after-the-end",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.0.0 trainer_callback.py "
            "`DefaultFlowCallback.on_step_end`: only "
            "every eval_steps; 5.6.2 to 5.23.0: evaluate at the end if we have a step-based "
            "strategy"
        ),
    ),
    check=_check,
)
