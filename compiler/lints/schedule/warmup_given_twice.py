"""Warm-up is given as steps and as a share."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import is_positive
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        steps, share = document.get("warmup_steps"), document.get("warmup_ratio")
        if steps is None or share is None or document.is_view:
            continue  # Axolotl's own check refuses the pair
        if is_positive(steps.value) and is_positive(share.value):
            last = run.runs("transformers>=5.0")
            used, unused = (share, steps) if last else (steps, share)
            yield Finding(
                f"warmup_ratio {share.value} beside warmup_steps {steps.value}",
                (unused.label("not used"), used.label("decides", primary=False)),
                (
                    "from 5.0 on the share is written over the steps"
                    if last
                    else "before 5.0 steps win, and a line of the log says so",
                ),
                f"remove {unused.path}",
                Fix((unused.removed(),), "safe" if last is not None else "unsafe"),
            )


RULE = Rule(
    name="warmup-given-twice",
    severity="warning",
    consequence="silent",
    consumers=("transformers<5.15",),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 training_args.py `get_warmup_steps`: steps above 0 win; "
            "5.0.0 and 5.6.2 `__post_init__`: warmup_steps = warmup_ratio; 5.15.1 has no "
            "warmup_ratio"
        ),
    ),
    check=_check,
)
