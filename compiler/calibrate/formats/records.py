"""JSON files: the Trainer's state, LLaMA-Factory's log, torch's statistics, the probe's records.

- transformers 4.40 to 5.23 trainer_callback.py `TrainerState.save_to_json`.
- llamafactory 0.9.1 to 0.9.4 train/callbacks.py `LogCallback.on_log`: `elapsed_time` in whole
  seconds, a line for every logged step.
- torch 2.0 to 2.13 cuda/memory.py `memory_stats`, whatever wrote it as JSON.
- compiler/watch/live/watch.py, which is copied into bundles.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tunec.compiler.calibrate.formats.lines import number, parse_trainer_logs
from tunec.compiler.calibrate.observation import Observation, typical

_ALLOCATED: Final = "allocated_bytes.all.peak"
_RESERVED: Final = "reserved_bytes.all.peak"


def parse_trainer_state(found: Any) -> list[Observation]:
    """`trainer_state.json`, which has the time only at the end of a run."""
    if not isinstance(found, Mapping) or not isinstance(found.get("log_history"), list):
        return []
    logs = [each for each in found["log_history"] if isinstance(each, Mapping)]
    shown = parse_trainer_logs(logs, "trainer_state.json")
    return [shown] if shown is not None else []


def parse_statistics(found: Any) -> list[Observation]:
    """`torch.cuda.memory_stats()` of one device, or a list of several."""
    every = found if isinstance(found, list) else [found]
    stats = [each for each in every if isinstance(each, Mapping) and _ALLOCATED in each]
    if not stats:
        return []
    return [
        Observation(
            "torch.cuda.memory_stats",
            allocated=_largest(stats, _ALLOCATED),
            reserved=_largest(stats, _RESERVED),
        )
    ]


def _largest(stats: Sequence[Mapping[str, Any]], key: str) -> int | None:
    sizes = [int(size) for each in stats if (size := number(each.get(key)))]
    return max(sizes, default=None)


def parse_llamafactory_log(lines: Sequence[Mapping[str, Any]]) -> list[Observation]:
    """LLaMA-Factory's `trainer_log.jsonl`: from the first logged step to the last."""
    points = [
        (int(step), _clock(str(each["elapsed_time"])))
        for each in lines
        if "elapsed_time" in each and (step := number(each.get("current_steps")))
    ]
    if len(points) < 2:
        return []
    (first, start), (last, end) = points[0], points[-1]
    if last <= first or end <= start:
        return []
    seconds = (end - start) / (last - first)
    return [Observation("trainer_log.jsonl", seconds, last - first, rough=True)]


def _clock(text: str) -> float:
    """Seconds of a duration such as `1 day, 2:03:04`."""
    days, _, rest = text.rpartition(" day")
    seconds = 0.0
    for part in rest.lstrip("s, ").split(":"):
        seconds = 60 * seconds + (number(part) or 0.0)
    return seconds + 86_400 * (number(days) or 0.0)


def parse_probe_records(lines: Sequence[Mapping[str, Any]]) -> list[Observation]:
    """The records of a bundle's probe since its last start."""
    starts = [at for at, each in enumerate(lines) if each.get("event") == "start"]
    if not starts:
        return []
    start, own = lines[starts[-1]], lines[starts[-1] :]
    steps = [each for each in own if each.get("event") == "step"]
    times = [time for each in steps if (time := number(each.get("seconds"))) is not None]
    seconds, measured = typical(times)
    versions = start.get("versions")
    stops = [str(each.get("why")) for each in own if each.get("event") == "stop"]
    return [
        Observation(
            "the probe",
            seconds,
            measured,
            allocated=_largest(own, "allocated"),
            reserved=_largest(own, "reserved"),
            used=_largest(own, "used"),
            versions=dict(versions) if isinstance(versions, Mapping) else {},
            device=next((str(each["device"]) for each in own if each.get("device")), ""),
            ranks=int(number(start.get("ranks")) or 0),
            when=str(start.get("when", ""))[:10],
            stopped=stops[-1] if stops else "",
        )
    ]


def read(text: str) -> list[Observation]:
    """The observations in a JSON document; empty if the text is none, or of another form."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return parse_trainer_state(found) or parse_statistics(found)


def read_lines(text: str) -> list[Observation]:
    """The observations in lines of JSON; a line that a killed run left unfinished is skipped."""
    lines = []
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            lines.append(found)
    return parse_probe_records(lines) or parse_llamafactory_log(lines)
