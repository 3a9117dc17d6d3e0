"""The recording of a trace: storages with their makers, and when each came and went."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct, field

Category = Literal[
    "weights",
    "gradients",
    "optimizer states",
    "training state",
    "buffers",
    "inputs",
    "activations",
    "temporaries",
]
"""The purpose of a storage. Training state: all that an engine keeps between steps besides
weights."""
PHASES: Final = ("forward", "backward", "optimizer step")
EVALUATION: Final = "evaluation"
PROMPT: Final = "evaluation prompt"
WRITING: Final = "evaluation answers"
SAVING: Final = "saving"
READING: Final = "prompt"
GENERATION: Final = "generation"
SCORING: Final = "scoring"
HANDING: Final = "handing over"
MERGING: Final = "merging"
BESIDE: Final = frozenset({SAVING, READING, GENERATION, SCORING, HANDING, MERGING})
"""Phases that belong neither to a training step nor to evaluation."""


class Storage(Struct, eq=False):
    """One storage: its purpose, and the operation and the module that made it."""

    bytes: int
    category: Category
    module: str
    """Dotted path in the real module tree, with numbers written as `{}`; empty outside of any
    module."""
    operation: str
    shape: tuple[int, ...]
    dtype: str


class Event(NamedTuple):
    """A storage was allocated, grown, shrunk or freed: a change of the bytes alive."""

    storage: Storage
    change: int


class Recording(Struct):
    """Everything that happened in the traced step, in order."""

    events: list[Event] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)
    """The index in `events` at which each phase begins, with the phase's name."""

    def begin(self, phase: str) -> None:
        """Mark that the following events belong to a phase."""
        self.marks.append((len(self.events), phase))


class Tensors(Struct, frozen=True):
    """Equal tensors that are alive at a peak: same maker, shape and dtype."""

    category: Category
    module: str
    operation: str
    shape: tuple[int, ...]
    dtype: str
    count: int
    bytes: int


class TracedPhase(Struct, frozen=True):
    """The moment of one phase at which most bytes are alive."""

    name: str
    peak_bytes: int
    terms: Mapping[str, int]
    """Bytes by category."""
    tensors: tuple[Tensors, ...]
    """The tensors that are alive at that moment, the largest groups first."""


class Trace(Struct, frozen=True):
    """One traced step."""

    phases: tuple[TracedPhase, ...]
    seconds: float
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def peak(self) -> TracedPhase:
        """The phase that needs the most memory."""
        return max(self.phases, key=lambda phase: phase.peak_bytes)


def traced_phases(recording: Recording) -> tuple[TracedPhase, ...]:
    """Find the peak of each phase; repetitions of a phase (accumulation) count as one phase."""
    best: dict[str, tuple[int, int]] = {}
    now, phase, marks = 0, "", dict(recording.marks)
    for at, event in enumerate(recording.events):
        phase = marks.get(at, phase)
        now += event.change
        if phase and now > best.get(phase, (-1, 0))[0]:
            best[phase] = (now, at)
    return tuple(_at(recording.events, name, at, top) for name, (top, at) in best.items())


def _at(events: Sequence[Event], name: str, last: int, top: int) -> TracedPhase:
    alive: dict[Storage, int] = {}
    for storage, change in events[: last + 1]:
        alive[storage] = alive.get(storage, 0) + change
    terms: dict[str, int] = {}
    groups: dict[_Key, list[int]] = {}
    for storage, size in alive.items():
        if size:
            terms[storage.category] = terms.get(storage.category, 0) + size
            groups.setdefault(_key(storage), []).append(size)
    found = [Tensors(*key, len(sizes), sum(sizes)) for key, sizes in groups.items()]
    found.sort(key=lambda each: -each.bytes)
    return TracedPhase(name, top, terms, tuple(found))


_Key = tuple[Category, str, str, tuple[int, ...], str]


def _key(each: Storage) -> _Key:
    return each.category, each.module, each.operation, each.shape, each.dtype
