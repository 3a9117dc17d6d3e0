"""Measurements of runs on a cluster beside their accounts, and the factors that follow.

`tunec calibrate` writes them to a file beside the cluster's own, for people to review.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from tunec.schemas.shape import Shape
from tunec.schemas.terms import EDITION, Resource

Ranks = Literal["one", "several"]
"""Whether a run has one process or several, since collectives make a difference."""

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Size = Annotated[int, Field(ge=0, le=1 << 60)]
FARTHEST: Final = 1e4
"""Factor by which a step time may differ from its account; beyond it, it belongs to another run."""


class Seconds(Shape):
    """A step's time."""

    measured: _Positive
    """Seconds from one optimizer step to the next: the median of `steps`."""
    steps: Annotated[int, Field(ge=1)]
    """How many steps were measured."""
    accounted: dict[str, _Positive]
    """Seconds by term, as the account has them before any calibration."""
    parts: dict[str, _Positive] = {}
    """Seconds of parts of a step, if a log has them: forward, backward, update, exchange."""
    edition: int = EDITION
    """The edition of the account."""

    @model_validator(mode="after")
    def _of_this_plan(self) -> Self:
        """Refuse times that no plan with these terms can have."""
        whole = sum(self.accounted.values())
        for name, seconds in (("a step", self.measured), *self.parts.items()):
            if not whole / FARTHEST < seconds < whole * FARTHEST:
                raise ValueError(f"{name} took {seconds:g} s, and {whole:g} s were accounted for")
        return self


class Memory(Shape):
    """The peaks, in bytes, of the device with the highest peaks."""

    accounted: _Size
    """Tensors at the peak, by the account."""
    allocated: _Size | None = None
    """Tensors at the peak, by torch."""
    reserved: _Size | None = None
    """The peak of memory that torch's allocator reserved."""
    used: _Size | None = None
    """The peak of used device memory, by the driver."""

    @property
    def beside(self) -> int | None:
        """Device memory of a process outside torch's allocator."""
        if self.used is None or self.reserved is None:
            return None
        return max(self.used - self.reserved, 0)


class Ran(Shape):
    """One run, beside its plan."""

    name: str
    """The spec's name."""
    when: str
    """The day of its last record: 2026-11-24."""
    files: tuple[str, ...]
    """The files that were read, and their kinds: `train.log (lines of the Trainer)`."""
    digest: str
    """The digest of those files, so that no run is counted twice."""
    versions: dict[str, str] = {}
    """The versions that ran: torch, transformers."""
    tunec: str
    """The version that made the account."""
    devices: Annotated[int, Field(ge=1)]
    """The number of ranks."""
    seconds: Seconds | None = None
    memory: Memory | None = None

    @property
    def ranks(self) -> Ranks:
        """Whether it had several processes."""
        return "several" if self.devices > 1 else "one"


class Margin(Shape):
    """What plans add to the tensors of the memory account."""

    tensors: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """The largest ratio of measured to accounted tensors; 1: never more than accounted."""
    beside: dict[Ranks, _Size] = {}
    """Bytes of a device outside torch's allocator; absent: the assumed value."""


class Error(Shape):
    """Median of |ln(measured / accounted)| of a step's time, over the runs."""

    before: float
    after: float


class Measured(Shape):
    """The file of a cluster's measurements."""

    tunec_measured: Literal[1]
    """Version of this format."""
    cluster: str
    """Name of the cluster."""
    factors: dict[Resource, _Positive] = {}
    """Factors by which the account's seconds are multiplied."""
    margin: Margin = Margin.model_construct()
    error: Error | None = None
    runs: tuple[Ran, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _no_less_than_seen(self) -> Self:
        """Refuse a margin below what a run showed, even if a person wrote it."""
        if self.margin.tensors < seen_tensors(self.runs) - _ROUNDED:
            seen = seen_tensors(self.runs)
            raise ValueError(f"margin.tensors is {self.margin.tensors}, and a run had {seen:.4f}")
        for ranks, size in self.margin.beside.items():
            seen_bytes = max(seen_beside(self.runs, ranks), default=0)
            if size < seen_bytes:
                raise ValueError(f"margin.beside.{ranks} is {size}, and a run had {seen_bytes}")
        return self


_ROUNDED: Final = 1e-4


def seen_tensors(runs: tuple[Ran, ...]) -> float:
    """The largest ratio of allocated to accounted bytes; 1 if none is larger."""
    ratios = (
        each.memory.allocated / each.memory.accounted
        for each in runs
        if each.memory is not None and each.memory.allocated and each.memory.accounted
    )
    return max((1.0, *ratios))


def seen_beside(runs: tuple[Ran, ...], ranks: Ranks) -> list[int]:
    """Device memory of each run outside torch's allocator, if it is known."""
    found = (each.memory.beside for each in runs if each.memory and each.ranks == ranks)
    return [size for size in found if size is not None]
