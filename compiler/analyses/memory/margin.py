"""The margin beyond the account: for a device's allocator, and for a node's host."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.timeline import Phase
from tunec.compiler.analyses.memory.workload import NOT_SEEN, Layout, SeenMargin, Workload
from tunec.schemas.terms import Vendor
from tunec.schemas.units import GIB, MIB

CONTEXT: Final = round(0.6 * GIB)
"""CUDA context, kernels and libraries. A judgement: the smallest difference between nvidia-smi and
torch's allocated bytes in fms-acceleration's 285 single-device and multi-device records (A100-80,
`scripts/benchmarks/refs/a100_80gb.csv`) is 0.9 GiB on one device, allocator slack included."""

COMMUNICATION: Final = 1 * GIB
"""NCCL channels and buffers; in the same records the smallest difference with several devices is
1.2 GiB larger."""

WORKSPACE: Final = 32 * MIB
"""cuBLAS workspace that torch holds for each handle: `:4096:8` on Hopper, less before (torch
documentation, "CUDA environment variables", CUBLAS_WORKSPACE_CONFIG)."""

_SLACK: Final = 0.08
_SLACK_BIG_LOGITS: Final = 0.10
_SLACK_STILL: Final = 0.04
"""Shares that the caching allocator cannot use for want of a hole of the right size: of what comes
and goes with the samples, and of what stays where it is or has expandable segments. A judgement
within what the records bear out: a full fine-tune with 74.8 GiB allocated, all but 5 % of what an
80 GB device has, ran there."""

_SLACK_STREAMS: Final = 0.2
"""The share of what comes and goes under FSDP 1, which gathers on a stream apart: the allocator
keeps blocks apart by stream, and one that was used on two is free when the device has come that far
(torch 2.13.0 `distributed/fsdp/_flat_param.py`, `_free_unsharded_flat_param`: `record_stream`, of
which FSDP 2 has none). The least share in tenths that refuses what fms-acceleration f1895b7 records
as out of memory: Llama-2-70B in 4 bits on two A100, 68.9 of 79.1 GiB in tensors by the account.
Where as much got through, nvidia-smi showed 78.4 to 79.3 GiB."""

_BIG_VOCABULARY: Final = 64_000

Kind = Literal["packed", "several", "padded"]
"""Every batch has the same length, on one device or on several; or lengths differ, and the
allocator keeps blocks for each that it saw."""

READING: Final[Mapping[Kind, float]] = {"packed": 0.52, "several": 0.62, "padded": 1.21}
"""Share of the peak by which nvidia-smi's figure, context and NCCL apart, exceeds the tensors at
most, on devices that have room. Fitted to 43 readings, every second one of the first
(`tests/analyses/memory/fit_margin.py`), by an estimate of the largest there is from the two largest
seen, 2 x the first - the second (Robson and Whitlock, "Estimation of a truncation point",
Biometrika 51, 1964); the other half judges it, and all that were found later. The allocator keeps
what it can get: no run needs this."""


def kind_of(workload: Workload, world: int) -> Kind:
    """The kind of nvidia-smi readings that a workload has on a number of devices."""
    if not workload.data.packing:
        return "padded"
    return "several" if world > 1 else "packed"


def running_ahead(workload: Workload, layout: Layout) -> int:
    """Bytes of parameters that were let go of and are not free yet, at most.

    With parameters on the host ZeRO-3 gathers on a stream of its own, and tells the allocator that
    the computing one uses what it gathered (deepspeed 0.19.8 `runtime/zero/
    partition_parameters.py`, `free_param`: `record_stream`). Such a block is free when the device
    has come that far, and the host, which counts `max_live_parameters` as it queues, may be ahead
    of it by all layers: published runs on devices with room show 7 to 20 GB beside the tensors
    (deepspeedai/DeepSpeed issues 7217 and 7670 show the blocks). A device without room is waited
    for.
    """
    if layout.parallel.engine != "deepspeed" or layout.zero.offload_param == "none":
        return 0
    return BYTES[layout.states.weights] * count(workload).base


SEEN: Final = "outside the allocator, as measured"
"""What stands for context and collectives where runs showed them together."""


class Slack(NamedTuple):
    """Shares to add for the allocator's fragmentation."""

    still: float
    """The share to add to bytes that do not depend on the micro batch."""
    moving: float
    """The share to add to the bytes of each sample."""


_EXPANDABLE: Final = Slack(_SLACK_STILL, _SLACK_STILL)
_BIG_LOGITS: Final = Slack(_SLACK_STILL, _SLACK_BIG_LOGITS)
_USUAL: Final = Slack(_SLACK_STILL, _SLACK)
_STREAMS: Final = Slack(_SLACK_STILL, _SLACK_STREAMS)


def slack(workload: Workload, layout: Layout) -> Slack:
    """The shares for a workload in a layout, scaled by the excess that runs have shown."""
    shares = _usual_slack(workload, layout)
    if workload.margin.tensors == 1:
        return shares
    return Slack(*((1 + share) * workload.margin.tensors - 1 for share in shares))


def _usual_slack(workload: Workload, layout: Layout) -> Slack:
    if workload.expandable_segments:
        return _EXPANDABLE
    if layout.fsdp.version == 1 and layout.parallel.world > 1:
        return _STREAMS
    big = workload.loss == "full" and workload.architecture.vocab > _BIG_VOCABULARY
    return _BIG_LOGITS if big else _USUAL


def with_slack(shares: Slack, lines: Iterable[Phase], micro: int, evaluation: int) -> int:
    """Bytes that the allocator takes for the phases of a micro batch and an evaluation batch."""
    still, moving = 1 + shares.still, 1 + shares.moving
    most = 0.0
    for line in lines:
        samples = evaluation if line.evaluates else micro
        most = max(most, line.fixed_bytes * still + line.sample_bytes * samples * moving)
    return round(most)


def apart(
    world: int, vendor: Vendor = "nvidia", margin: SeenMargin = NOT_SEEN
) -> Mapping[str, int]:
    """Bytes that do not depend on the tensors, by name; as `margin` has them where runs showed it.

    For other vendors than NVIDIA the same amounts are assumed: no published record parts them.
    """
    usual = _APART_OF_SEVERAL[vendor] if world > 1 else _APART_OF_ONE[vendor]
    seen = margin.several if world > 1 else margin.one
    return usual if seen is None else {SEEN: seen, _CALLED[vendor][2]: WORKSPACE}


_CALLED: Final[Mapping[Vendor, tuple[str, str, str]]] = {
    "nvidia": ("CUDA context", "NCCL", "cuBLAS workspace"),
    "amd": ("HIP context", "RCCL", "hipBLAS workspace"),
    "intel": ("SynapseAI context", "HCCL", "matrix workspace"),
    "huawei": ("CANN context", "HCCL", "matrix workspace"),
}
"""What holds it: the driver's context, the collectives, the matrix products."""
_APART_OF_ONE: Final = {
    vendor: {context: CONTEXT, products: WORKSPACE}
    for vendor, (context, _, products) in _CALLED.items()
}
_APART_OF_SEVERAL: Final = {
    vendor: {context: CONTEXT, collectives: COMMUNICATION, products: WORKSPACE}
    for vendor, (context, collectives, products) in _CALLED.items()
}


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


class Request(Struct, frozen=True):
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
