"""What the files of one run show, whatever wrote them."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from msgspec import Struct, field

from tunec.schemas.frozen import replace


class Observation(Struct, frozen=True):
    """What one file shows, or all files of a run together; what it does not show is absent."""

    source: str = ""
    """The form of the file, for people."""
    seconds: float | None = None
    """Seconds from one optimizer step to the next."""
    steps: int = 0
    """Of how many steps."""
    samples_per_second: float | None = None
    """Over all devices, where the form tells no steps."""
    rough: bool = False
    """Whether the seconds hold more than steps: loading, evaluations, checkpoints."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the parts of a step (`attribution.PARTS`)."""
    allocated: int | None = None
    """Bytes of tensors at most, of the device that had most."""
    reserved: int | None = None
    used: int | None = None
    """Bytes in use of the device by its driver."""
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    """What the device of its first rank calls itself, or `cpu`."""
    ranks: int = 0
    """Processes; 0: not told."""
    when: str = ""
    """The day of its last record, where it tells."""
    stopped: str = ""
    """Why the probe stopped the run."""

    @property
    def is_empty(self) -> bool:
        """Whether it shows neither time nor memory."""
        shown = (self.seconds, self.samples_per_second, self.allocated, self.reserved, self.used)
        return not any(each is not None for each in shown)


FIRST: Final = 1
"""Steps at the start that are left out: kernels are compiled, and blocks are found."""


def typical(times: Sequence[float]) -> tuple[float | None, int]:
    """The median of steps but the first, and of how many; of all where there are no more."""
    kept = [each for each in (times[FIRST:] or times) if each > 0]
    return (median(kept), len(kept)) if kept else (None, 0)


def together(found: Iterable[Observation]) -> Observation:
    """The files of one run as one: the time by the best that tells it, the highest peaks."""
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
    """Steps come before samples, and before means over the whole run."""
    return each.rough, each.seconds is None


def _most(sizes: Iterable[int | None]) -> int | None:
    return max((each for each in sizes if each is not None), default=None)
