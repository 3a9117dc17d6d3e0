"""What runs on a cluster came to, beside what was accounted for, and the numbers that follow.

`tunec calibrate` writes it to a file beside the cluster's own, for people to review.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from tunec.schemas.shape import Shape
from tunec.schemas.terms import EDITION, Resource

Ranks = Literal["one", "several"]
"""Whether a run has one process or several, which collectives make a difference to."""

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Size = Annotated[int, Field(ge=0, le=1 << 60)]
FARTHEST: Final = 1e4
"""Times that a step may be longer or shorter than accounted; beyond, it is that of another run."""


class Seconds(Shape):
    """A step's time."""

    measured: _Positive
    """Seconds from one optimizer step to the next: the median of `steps`."""
    steps: Annotated[int, Field(ge=1)]
    """How many steps were measured."""
    accounted: dict[str, _Positive]
    """Seconds by term, as the account has them without any measurement."""
    parts: dict[str, _Positive] = {}
    """Seconds of parts of a step, where a log has them: forward, backward, update, exchange."""
    edition: int = EDITION
    """Of the account."""

    @model_validator(mode="after")
    def _of_this_plan(self) -> Self:
        """Refuse times that no plan with these terms can have had."""
        whole = sum(self.accounted.values())
        for name, seconds in (("a step", self.measured), *self.parts.items()):
            if not whole / FARTHEST < seconds < whole * FARTHEST:
                raise ValueError(f"{name} took {seconds:g} s, and {whole:g} s were accounted for")
        return self


class Memory(Shape):
    """The peaks of the device that had the highest; bytes."""

    accounted: _Size
    """Tensors at the peak, by the account."""
    allocated: _Size | None = None
    """Tensors at the peak, by torch."""
    reserved: _Size | None = None
    """What torch's allocator had of the device at most."""
    used: _Size | None = None
    """What was in use of the device at most, by its driver."""

    @property
    def beside(self) -> int | None:
        """What a process has of the device beside torch's allocator."""
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
    """What was read of it, and how: `train.log (lines of the Trainer)`."""
    digest: str
    """Of what was read: a run is not counted twice."""
    versions: dict[str, str] = {}
    """What ran: torch, transformers."""
    tunec: str
    """The version that made the account."""
    devices: Annotated[int, Field(ge=1)]
    """Ranks."""
    seconds: Seconds | None = None
    memory: Memory | None = None

    @property
    def ranks(self) -> Ranks:
        """Whether it had several processes."""
        return "several" if self.devices > 1 else "one"


class Margin(Shape):
    """What plans count beside the tensors that they account for."""

    tensors: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Times that torch had more tensors than accounted for at most; 1: never more."""
    beside: dict[Ranks, _Size] = {}
    """Bytes of a device beside torch's allocator; absent: as assumed."""


class Error(Shape):
    """Median of |ln(measured / accounted)| of a step's time, over the runs."""

    before: float
    after: float


class Measured(Shape):
    """The file."""

    tunec_measured: Literal[1]
    """Version of this form."""
    cluster: str
    """Name of the cluster."""
    factors: dict[Resource, _Positive] = {}
    """By what the account's seconds are multiplied."""
    margin: Margin = Margin.model_construct()
    error: Error | None = None
    runs: tuple[Ran, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _no_less_than_seen(self) -> Self:
        """Refuse a margin below what a run showed, whoever wrote it."""
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
    """The largest ratio of allocated to accounted bytes; 1 where none is larger."""
    ratios = (
        each.memory.allocated / each.memory.accounted
        for each in runs
        if each.memory is not None and each.memory.allocated and each.memory.accounted
    )
    return max((1.0, *ratios))


def seen_beside(runs: tuple[Ran, ...], ranks: Ranks) -> list[int]:
    """What each run had of a device beside torch's allocator, where that is known."""
    found = (each.memory.beside for each in runs if each.memory and each.ranks == ranks)
    return [size for size in found if size is not None]
