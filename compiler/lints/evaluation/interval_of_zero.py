"""An interval of 0: nothing is saved on the way, and evaluation comes when logs do."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.evaluation.asked import strategy_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        yield from _unsaved(document)
        yield from _evaluated_with_logs(run, document)


def _unsaved(document: Document) -> Iterator[Finding]:
    every, how = document.get("save_steps"), document.get("save_strategy")
    if every is None or type(every.value) not in (int, float) or every.value > 0:
        return
    if how is not None and how.value not in ("steps", None):
        return
    best = document.get("load_best_model_at_end")
    if best is not None and best.value is True:
        return
    yield Finding(
        f"save_steps {every.value}: no checkpoint is written before the end",
        (every.label("never"), *([how.label("", primary=False)] if how else [])),
        ("a run that is stopped has to begin anew",),
        "write an interval, or save_strategy: no",
    )


def _evaluated_with_logs(run: Run, document: Document) -> Iterator[Finding]:
    every, how = document.get("eval_steps"), strategy_of(document)
    logged = run.effective("trainer", "logging_steps").value
    if every is None or every.value != 0 or type(every.value) is bool:
        return
    if how is None or how.value != "steps" or not logged:
        return
    yield Finding(
        f"eval_steps 0 is taken for logging_steps: {logged}",
        (every.label("as if it were left out"), how.label("", primary=False)),
        help="write an interval, or eval_strategy: no",
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
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments.__post_init__`: "
            "using `logging_steps` to initialize `eval_steps`"
        ),
    ),
    check=_check,
)
