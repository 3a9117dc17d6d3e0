"""Bytes that a device moves to accumulate the gradients of micro batches."""

from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.rank import of_rank
from tunec.compiler.analyses.memory.sharding import GRADIENTS
from tunec.compiler.analyses.memory.terms.fsdp_units import gradient_width
from tunec.compiler.analyses.memory.workload import Layout, Workload


def accumulated_bytes(workload: Workload, layout: Layout) -> float:
    """Bytes of one micro batch, on average over a step.

    All but the first add theirs: two are read and one written. Stages 2 and 3 add what is left
    after the exchange, a shard (deepspeed 0.19.8 `runtime/zero/stage3.py`, `partition_grads`).
    FSDP 1 joins the gradients of a unit first (torch 2.13 `distributed/fsdp/_flat_param.py`,
    `_get_unflat_views_aligned`: `torch.split`, whose gradient is a copy of all).
    """
    trainable = count(of_rank(workload, layout.parallel.tensor)).trainable
    times, sharded = layout.batch.accumulation, layout.zero.stage >= GRADIENTS
    engine = layout.parallel.engine
    ranks = layout.parallel.data * layout.parallel.sequence
    own = trainable / ranks if engine == "deepspeed" and sharded else trainable
    is_fsdp = bool(layout.fsdp.version)
    width = gradient_width(workload, layout.states) if is_fsdp else BYTES[layout.states.gradients]
    added = 3 * width * own * (times - 1) / times
    return added + (2 * width * trainable if layout.fsdp.version == 1 else 0)
