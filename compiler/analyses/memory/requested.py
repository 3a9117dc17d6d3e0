"""Host memory to ask a cluster for: what is needed with a margin, as far as a node gives it."""

from typing import Final

from tunec.schemas.frozen import dataclass
from tunec.schemas.units import GIB, MIB

MARGIN: Final = 0.25
LEAST_MARGIN: Final = 4 * GIB
"""On top of the host account, which knows nothing of CUDA's libraries in each process, of shared
memory between data loading processes, or of what a script of the user's holds: a judgement."""

_SYSTEM_SHARE: Final = 0.05
"""AWS ParallelCluster, Slurm memory-based scheduling: 95 percent of a node's memory can be had;
Google Kubernetes Engine on premises, resources available for pods: 5 percent are reserved."""
_EVICTION: Final = 100 * MIB
_RESERVED: Final = ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06), (float("inf"), 0.02))
"""GiB of a node's memory, and the part of each that is reserved (Google Kubernetes Engine, Plan
node sizes, memory reservations; the eviction threshold on top)."""


def allocatable(total: int) -> int:
    """Bytes of a node's RAM that a job can be given: less than there is, whatever the manager.

    The kubelet keeps some for the system and for itself, and Slurm's RealMemory has to lie below
    what the kernel finds; of both the larger reserve is taken.
    """
    return total - round(max(_SYSTEM_SHARE * total, _kept_by_kubelet(total)))


def _kept_by_kubelet(total: int) -> float:
    kept, left = float(_EVICTION), total / GIB
    for width, share in _RESERVED:
        part = min(width, left)
        kept, left = kept + share * part * GIB, left - part
    return kept


@dataclass(frozen=True, slots=True)
class Request:
    """Host memory that is asked for on each node, in bytes, and the sum behind it."""

    asked: int
    needed: int
    given: int
    """The most that a node gives, or that the run may take."""

    @property
    def is_tight(self) -> bool:
        """Whether a node gives less than is needed."""
        return self.needed > self.given


def requested(needed: int, total: int, budget: int | None) -> Request:
    """Ask for what is needed with a margin, in whole GiB, as far as a node gives it.

    `total` is the RAM of a node and `budget` what the run may take of it. Where a node cannot give
    what is needed, that is asked for all the same: with less the run would be killed.
    """
    given = min(allocatable(total), total if budget is None else budget)
    wished = needed + max(MARGIN * needed, LEAST_MARGIN)
    bounded = min(_up(wished), given // GIB * GIB)
    return Request(max(bounded, _up(needed), GIB), needed, given)


def _up(amount: float) -> int:
    return -round(-amount // GIB) * GIB
