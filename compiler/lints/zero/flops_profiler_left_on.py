"""DeepSpeed's profiler is left on."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for place in run.each("deepspeed", "flops_profiler.enabled"):
        if place.value is not True:
            continue
        step = run.effective("deepspeed", "flops_profiler.profile_step")
        yield Finding(
            f"the FLOPS profiler is on: step {step.value or 1} runs under its hooks",
            (place.label("profiles one step"),),
            ("its hooks replace torch's functions in that step, and its report goes to the log",),
            "turn it off in a run that trains",
            Fix((place.replaced(False),), "unsafe"),
        )


RULE = Rule(
    name="flops-profiler-left-on",
    severity="note",
    consequence="slow",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `forward`: flops_profiler.start_profile "
            "at profile_step; profiling/flops_profiler/profiler.py `_patch_functionals`"
        ),
    ),
    check=_check,
)
