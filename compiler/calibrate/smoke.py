"""Checks by the probe's records whether a short run met its conditions."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from tunec.compiler.watch.expectation import CLOSE, STEPS

Verdict = Literal["ok", "failed", "not seen"]
Line = Mapping[str, Any]
_RECORDS: Final = "run.jsonl"


class ConditionResult(Struct, frozen=True):
    """The result of one condition."""

    name: str
    text: str
    verdict: Verdict
    detail: str = ""


def is_silent(each: ConditionResult) -> bool:
    """Whether memory was not observed because the devices are CPUs, without torch's allocator."""
    return each.name == "memory" and each.verdict == "not seen"


def lines_in(folder: Path) -> list[Line]:
    """The records of a bundle's probe, without lines that a killed run left unfinished."""
    found = []
    try:
        text = (folder / _RECORDS).read_text("utf-8", errors="replace")
    except OSError:
        return []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return [each for each in found if isinstance(each, dict)]


def judged(
    must_show: Mapping[str, str], allowed: int, lines: Sequence[Line]
) -> Iterator[ConditionResult]:
    """The result of each condition; `allowed` is the limit of tensors in bytes."""
    first, again = _phase(lines, "first"), _phase(lines, "resumed")
    found = {
        "steps": _steps(first),
        "memory": _memory([*first, *again], allowed),
        "evaluation": _has(first, "evaluate"),
        "save": _has(first, "save"),
        "resume": _resumed(first, again),
    }
    for name, text in must_show.items():
        verdict, detail = found.get(name, ("not seen", ""))
        yield ConditionResult(name, text, verdict, detail)


_Told = tuple[Verdict, str]


def _phase(lines: Sequence[Line], name: str) -> Sequence[Line]:
    """The records of the last run of a phase."""
    starts = [at for at, each in enumerate(lines) if each.get("event") == "start"]
    own = [at for at in starts if lines[at].get("smoke") == name]
    if not own:
        return []
    end = next((at for at in starts if at > own[-1]), len(lines))
    return lines[own[-1] : end]


def _stopped(lines: Sequence[Line]) -> str:
    return next((str(each.get("why")) for each in lines if each.get("event") == "stop"), "")


def _of(lines: Sequence[Line], event: str) -> list[Line]:
    return [each for each in lines if each.get("event") == event]


def _steps(lines: Sequence[Line]) -> _Told:
    stopped = _stopped(lines)
    if stopped:
        return "failed", stopped
    losses = [each.get("loss") for each in _of(lines, "step")]
    if len(losses) < STEPS:
        return "not seen", f"{len(losses)} of {STEPS} steps"
    if not all(isinstance(each, int | float) for each in losses):
        return "failed", f"losses {losses}"
    return "ok", f"losses {', '.join(f'{each:.4g}' for each in losses)}"


def _memory(lines: Sequence[Line], allowed: int) -> _Told:
    sizes = [each["allocated"] for each in lines if isinstance(each.get("allocated"), int)]
    if not sizes:
        return "not seen", "the devices told no memory"
    most = f"{max(sizes) / 2**30:.1f} GiB"
    return ("ok" if max(sizes) <= allowed else "failed"), most


def _has(lines: Sequence[Line], event: str) -> _Told:
    at = [each.get("step") for each in _of(lines, event)]
    return ("ok", "") if STEPS in at else ("not seen", "")


def _resumed(first: Sequence[Line], again: Sequence[Line]) -> _Told:
    stopped = _stopped(again)
    if stopped:
        return "failed", stopped
    begun = [each.get("step") for each in _of(again, "train")]
    if not begun:
        return "not seen", ""
    if begun != [1]:
        return "failed", f"it went on after step {begun[-1]}, and not after step 1"
    one, other = (_loss(lines) for lines in (first, again))
    if one is None or other is None:
        return "not seen", f"no loss of step {STEPS}"
    is_close = abs(one - other) <= CLOSE * max(abs(one), abs(other))
    return ("ok" if is_close else "failed"), f"losses {one:.5g} and {other:.5g}"


def _loss(lines: Sequence[Line]) -> float | None:
    """The loss of the last step."""
    found = [each.get("loss") for each in _of(lines, "step") if each.get("step") == STEPS]
    return found[-1] if found and isinstance(found[-1], int | float) else None
