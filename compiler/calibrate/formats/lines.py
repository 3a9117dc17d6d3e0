"""Lines that trainers print: the Trainer's mappings, its bar, DeepSpeed's throughput and clocks.

- transformers 4.40 to 5.23 trainer_callback.py `PrinterCallback.on_log`, which TRL and Axolotl
  share: `{'loss': 1.2, ..., 'epoch': 0.5}`, with numbers as texts from 5 on; the last line has
  `train_runtime` and `train_steps_per_second`. Axolotl 0.9 and later core/trainers/base.py `log`
  adds `memory/max_allocated (GiB)` and `memory/device_reserved (GiB)`.
- the bar of tqdm: ` 50%|#####     | 5/10 [00:10<00:10,  2.01s/it]`.
- deepspeed 0.14.5 to 0.19.8 utils/timer.py `ThroughputTimer.stop` and
  `SynchronizedWallClockTimer.log`: milliseconds of one optimizer step, by part, if
  `wall_clock_breakdown` is on. Its GB are GiB.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.calibrate.observation import FIRST, Observation, typical
from tunec.schemas.units import GIB

_LONG: Final = 20.0
"""The least number of seconds that a bar must cover, as it shows whole seconds."""
_MAPPING: Final = re.compile(r"\{'[^{}]*\}")
_BAR: Final = re.compile(
    r"(?P<done>\d+)/(?P<all>\d+) \[(?P<time>(?:\d+:)?\d+:\d+(?:\.\d+)?)<[^\],]*, *"
    r"[\d.?]+ ?(?:s/it|it/s)\]"
)
_SPEED: Final = re.compile(
    r"global_step=(?P<step>\d+), RunningAvgSamplesPerSec=(?P<mean>[\d.e+-]+), "
    r"CurrSamplesPerSec=[^,]*, MemAllocated=[^,]*GB, MaxMemAllocated=(?P<peak>[\d.]+)GB"
)
_CLOCKS: Final = re.compile(r"time \(ms\)(?P<parts>(?: \| \w+: [\d.]+)+)")
_CLOCK: Final = re.compile(r"\| (?P<name>\w+): (?P<time>[\d.]+)")
_DAY: Final = re.compile(r"\b(20\d\d-[01]\d-[0-3]\d)[ T,]")


def mappings(text: str) -> Iterator[Mapping[str, Any]]:
    """The mappings in a log, each on one line."""
    for found in _MAPPING.finditer(text):
        try:
            value = ast.literal_eval(found[0])
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, dict):
            yield value


def number(value: Any) -> float | None:
    """A number, which may be given as text; None for anything else."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if 0 <= found < float("inf") else None


def parse_trainer_logs(logs: Sequence[Mapping[str, Any]], source: str) -> Observation | None:
    """The observation in the Trainer's logs: its mean over the whole run, and Axolotl's memory."""
    rates = [rate for each in logs if (rate := number(each.get("train_steps_per_second")))]
    times = [time for each in logs if (time := number(each.get("train_runtime")))]
    found = Observation(
        source,
        seconds=1 / rates[-1] if rates and rates[-1] else None,
        steps=round(rates[-1] * times[-1]) if rates and times else 0,
        rough=True,
        allocated=_most(logs, "memory/max_allocated (GiB)", "memory/max_mem_allocated(gib)"),
        reserved=_most(logs, "memory/device_reserved (GiB)", "memory/device_mem_reserved(gib)"),
    )
    return None if found.is_empty else found


def _most(logs: Sequence[Mapping[str, Any]], *keys: str) -> int | None:
    sizes = [size for each in logs for key in keys if (size := number(each.get(key)))]
    return round(max(sizes) * GIB) if sizes else None


def parse_progress_bar(text: str) -> Observation | None:
    """The observation in a bar: from the end of the first step to the last, in whole seconds."""
    runs: dict[int, dict[int, float]] = {}
    for found in _BAR.finditer(text):
        runs.setdefault(int(found["all"]), {})[int(found["done"])] = _clock(found["time"])
    for points in sorted(runs.values(), key=len, reverse=True)[:1]:
        steps = sorted(step for step in points if step >= FIRST)
        passed = points[steps[-1]] - points[steps[0]] if len(steps) > 1 else 0.0
        if passed >= _LONG:
            number_of = steps[-1] - steps[0]
            return Observation("a bar of tqdm", passed / number_of, number_of, rough=True)
    return None


def _clock(text: str) -> float:
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds


def parse_throughput(text: str) -> Observation | None:
    """DeepSpeed's last rate of samples per second, and the most memory that was allocated."""
    found = list(_SPEED.finditer(text))
    if not found:
        return None
    rate = number(found[-1]["mean"])
    return Observation(
        "DeepSpeed's throughput",
        steps=int(found[-1]["step"]),
        samples_per_second=rate or None,
        allocated=round(max(float(each["peak"]) for each in found) * GIB) or None,
    )


_PARTS: Final = {"bwd_allreduce": "exchange", "step": "update"}
_WHOLE: Final = frozenset({"fwd", "bwd", "step"})


def parse_clocks(text: str) -> Observation | None:
    """DeepSpeed's clocks of whole steps and of their parts.

    `bwd` includes `bwd_inner` and `bwd_allreduce`.
    """
    steps = [
        {each["name"]: float(each["time"]) / 1000 for each in _CLOCK.finditer(line["parts"])}
        for line in _CLOCKS.finditer(text)
    ]
    steps = [each for each in steps if each.keys() >= _WHOLE]
    seconds, measured = typical([sum(each[name] for name in _WHOLE) for each in steps])
    if seconds is None:
        return None
    parts = {}
    for clock, part in _PARTS.items():
        time, _ = typical([each[clock] for each in steps if clock in each])
        if time is not None:
            parts[part] = time
    passes = seconds - sum(parts.values())
    if passes > 0:
        parts["passes"] = passes
    return Observation("DeepSpeed's clocks", seconds, measured, parts=parts)


def read(text: str) -> list[Observation]:
    """All observations in the lines of a log."""
    text = text.replace("\r", "\n")
    told = (
        parse_clocks(text),
        parse_throughput(text),
        parse_progress_bar(text),
        parse_trainer_logs(list(mappings(text)), "lines of the Trainer"),
    )
    days = _DAY.findall(text)
    found = [each for each in told if each is not None]
    return found if not days else [*found, Observation(when=max(days))] if found else []
