"""DeepSpeed's autotuning is on in the file of a run that trains."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if any(each.get("flags.autotuning") is not None for each in launches(run)):
        return
    for place in run.each("deepspeed", "autotuning.enabled"):
        last = run.said("deepspeed", "autotuning.end_profile_step")
        step = last.value if last is not None and type(last.value) is int else 5
        if place.value is True:
            yield Finding(
                f"autotuning ends the run after step {step + 1}",
                (place.label("ends the run"), *([last.label("", primary=False)] if last else [])),
                ("the engine measures steps, writes autotuning_metric.json, and calls exit()",),
                "write false, or remove the block, in a run that trains",
                Fix((place.replaced(False),), "unsafe"),
            )


RULE = Rule(
    name="autotuning-left-on",
    severity="warning",
    consequence="step",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `step`: _autotuning_exit() where "
            "global_steps is autotuning_end_profile_step + 1; autotuning/constants.py: 5; "
            "launcher/runner.py `main`: --autotuning starts the experiments"
        ),
    ),
    check=_check,
)
