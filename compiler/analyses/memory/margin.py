"""What a device needs beyond the tensors that are counted."""

from typing import Final

from tunec.compiler.analyses.memory.phase import Terms
from tunec.compiler.analyses.memory.workload import Workload
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
_SLACK_EXPANDABLE: Final = 0.04
"""Shares of the peak that the caching allocator cannot use for want of a hole of the right size. A
judgement, no measurement: in the same records runs with 74.8 GiB allocated succeed on 80 GB, while
reserved memory is 1.1 to 1.7 times the allocated one where nothing presses."""

_BIG_VOCABULARY: Final = 64_000


def slack_share(workload: Workload) -> float:
    """Share of the peak to add for the allocator's fragmentation."""
    if workload.expandable_segments:
        return _SLACK_EXPANDABLE
    big = workload.loss == "full" and workload.architecture.vocab > _BIG_VOCABULARY
    return _SLACK_BIG_LOGITS if big else _SLACK


def margin(workload: Workload, world: int, peak: float) -> Terms:
    """Bytes to add to the peak, by name."""
    return {
        "CUDA context": CONTEXT,
        "NCCL": COMMUNICATION if world > 1 else 0,
        "cuBLAS workspace": WORKSPACE,
        "allocator slack": slack_share(workload) * peak,
    }
