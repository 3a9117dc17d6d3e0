"""Observations in the files of one run, whatever program wrote them."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from msgspec import Struct, field

from tunec.schemas.frozen import replace


class Observation(Struct, frozen=True):
    """The values shown by one file, or by all files of a run; other values are absent."""

    source: str = ""
    """The format of the file, as text for users."""
    seconds: float | None = None
    """Seconds from one optimizer step to the next."""
    steps: int = 0
    """The number of steps behind `seconds`."""
    samples_per_second: float | None = None
    """Over all devices, if the format has no step times."""
    rough: bool = False
    """Whether the seconds include more than steps: loading, evaluations, checkpoints."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each part of a step (`attribution.PARTS`)."""
    allocated: int | None = None
    """Peak bytes of tensors, on the device with the most."""
    reserved: int | None = None
    used: int | None = None
    """Bytes in use on the device, as its driver reports."""
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    """The name of the first rank's device, or `cpu`."""
    ranks: int = 0
    """The number of processes; 0 if unknown."""
    when: str = ""
    """The day of the last record, if known."""
    stopped: str = ""
    """Why the probe stopped the run."""

    @property
    def is_empty(self) -> bool:
        """Whether there is neither time nor memory."""
        shown = (self.seconds, self.samples_per_second, self.allocated, self.reserved, self.used)
        return not any(each is not None for each in shown)


FIRST: Final = 1
"""Steps at the start that are left out, since kernels are compiled and memory blocks found."""


def typical(times: Sequence[float]) -> tuple[float | None, int]:
    """The median of steps and their number, without the first step unless it is the only one."""
    kept = [each for each in (times[FIRST:] or times) if each > 0]
    return (median(kept), len(kept)) if kept else (None, 0)


def together(found: Iterable[Observation]) -> Observation:
    """The files of one run combined: the time from the best source, and the highest peaks."""
    every = list(found)
    timed = [each for each in every if each.seconds is not None or each.samples_per_second]
    best = min(timed, key=_rank, default=Observation())
    return replace(
        best,
        source=", ".join(dict.fromkeys(each.source for each in every)),
        parts=next((each.parts for each in every if each.parts), {}),
        allocated=_most(each.allocated for each in every),
        reserved=_most(each.reserved for each in every),
        used=_most(each.used for each in every),
        versions={name: text for each in every for name, text in each.versions.items()},
        device=next((each.device for each in every if each.device), ""),
        ranks=max((each.ranks for each in every), default=0),
        when=max((each.when for each in every), default=""),
        stopped=next((each.stopped for each in every if each.stopped), ""),
    )


def _rank(each: Observation) -> tuple[bool, bool]:
    """The order of sources: step times, then samples per second, then means over the whole run."""
    return each.rough, each.seconds is None


def _most(sizes: Iterable[int | None]) -> int | None:
    return max((each for each in sizes if each is not None), default=None)
