"""A number of epochs beside a number of steps."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import is_positive
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        steps, passes = document.get("max_steps"), document.get("num_train_epochs")
        if steps is None or passes is None or document.is_compiled:
            continue
        if is_positive(steps.value) and is_positive(passes.value):
            yield Finding(
                f"{passes.path} {passes.value} beside {steps.path} {steps.value}",
                (passes.label("not used"), steps.label("decides", primary=False)),
                ("steps win, whether they are more than the epochs or less",),
                f"remove {passes.path}",
                Fix((passes.removed(),), "safe"),
            )


RULE = Rule(
    name="epochs-beside-steps",
    severity="note",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `_validate_args`: max_steps is given, it "
            "will override any value given in num_train_epochs"
        ),
    ),
    check=_check,
)
