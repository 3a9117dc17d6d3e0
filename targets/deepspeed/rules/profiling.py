"""Profilers and timers that are left on."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import also
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, rule


@rule(
    "autotuning-left-on",
    "warning",
    "step",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `step`: _autotuning_exit() where "
        "global_steps is autotuning_end_profile_step + 1; autotuning/constants.py: 5; "
        "launcher/runner.py `main`: --autotuning starts the experiments"
    ),
    reads=("deepspeed:autotuning.enabled",),
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


flops_profiler_left_on = rows(
    "flops-profiler-left-on",
    "note",
    "slow",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `forward`: flops_profiler.start_profile "
        "at profile_step; profiling/flops_profiler/profiler.py `_patch_functionals`"
    ),
    rows=(
        Row(
            "deepspeed:flops_profiler.enabled=true",
            "the FLOPS profiler is on: step {1.value} runs under its hooks",
            label="profiles one step",
            why="its hooks replace torch's functions in that step, and its report goes to the log",
            help="turn it off in a run that trains",
            mend=Mend("unsafe", write=False),
            effective=("(deepspeed:flops_profiler.profile_step?)",),
        ),
    ),
)


timers_left_on = rows(
    "timers-left-on",
    "note",
    "slow",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 utils/timer.py `SynchronizedWallClockTimer`: accelerator "
        "events and synchronize around each phase; utils/comms_logging.py; comm/comm.py "
        "`timed_op`"
    ),
    rows=(
        *(
            Row(
                f"deepspeed:{key}=true",
                f"{key} is on",
                label="measures every step",
                why=what,
                help="turn it off once the numbers are taken",
                mend=Mend("unsafe", write=False),
            )
            for key, what in (
                (
                    "wall_clock_breakdown",
                    "each phase of each micro batch waits for the device and is timed",
                ),
                ("comms_logger.enabled", "each collective waits for the device and is timed"),
                ("memory_breakdown", "allocator statistics are read in every step"),
                ("dump_state", "the state of the engine is printed"),
            )
        ),
    ),
)
