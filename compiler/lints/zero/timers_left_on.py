"""Measurements that wait for the device in every step are left on."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final[Mapping[str, str]] = {
    "wall_clock_breakdown": "each phase of each micro batch waits for the device and is timed",
    "comms_logger.enabled": "each collective waits for the device and is timed",
    "memory_breakdown": "allocator statistics are read in every step",
    "dump_state": "the state of the engine is printed",
}


def _check(run: Run) -> Iterator[Finding]:
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


RULE = Rule(
    name="timers-left-on",
    severity="note",
    consequence="slow",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 utils/timer.py `SynchronizedWallClockTimer`: accelerator "
            "events and synchronize around each phase; utils/comms_logging.py; comm/comm.py "
            "`timed_op`"
        ),
    ),
    check=_check,
)
