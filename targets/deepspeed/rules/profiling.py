"""Profilers and timers that are left on."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.launch.scripts import launches
from tunec.compiler.lints.place import also
from tunec.compiler.lints.rule import Finding, rule


@rule(
    "autotuning-left-on",
    "warning",
    "step",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `step`: _autotuning_exit() where "
            "global_steps is autotuning_end_profile_step + 1; autotuning/constants.py: 5; "
            "launcher/runner.py `main`: --autotuning starts the experiments"
        ),
    ),
)
def autotuning_left_on(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's autotuning is on in the file of a run that trains."""
    if any(each.get("flags.autotuning") is not None for each in launches(run)):
        return
    for place in run.each("deepspeed", "autotuning.enabled"):
        last = run.said("deepspeed", "autotuning.end_profile_step")
        step = last.value if last is not None and type(last.value) is int else 5
        if place.value is True:
            yield Finding(
                f"autotuning ends the run after step {step + 1}",
                (place.label("ends the run"), *also(last)),
                ("the engine measures steps, writes autotuning_metric.json, and calls exit()",),
                "write false, or remove the block, in a run that trains",
                Fix((place.replaced(False),), "unsafe"),
            )


@rule(
    "flops-profiler-left-on",
    "note",
    "slow",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `forward`: flops_profiler.start_profile "
            "at profile_step; profiling/flops_profiler/profiler.py `_patch_functionals`"
        ),
    ),
)
def flops_profiler_left_on(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's profiler is left on."""
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


_KEYS: Final[Mapping[str, str]] = {
    "wall_clock_breakdown": "each phase of each micro batch waits for the device and is timed",
    "comms_logger.enabled": "each collective waits for the device and is timed",
    "memory_breakdown": "allocator statistics are read in every step",
    "dump_state": "the state of the engine is printed",
}


@rule(
    "timers-left-on",
    "note",
    "slow",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 utils/timer.py `SynchronizedWallClockTimer`: accelerator "
            "events and synchronize around each phase; utils/comms_logging.py; comm/comm.py "
            "`timed_op`"
        ),
    ),
)
def timers_left_on(run: LintContext) -> Iterator[Finding]:
    """Measurements that wait for the device in every step are left on."""
    for key, what in _KEYS.items():
        for place in run.each("deepspeed", key):
            if place.value is True:
                yield Finding(
                    f"{key} is on",
                    (place.label("measures every step"),),
                    (what,),
                    "turn it off once the numbers are taken",
                    Fix((place.replaced(False),), "unsafe"),
                )
