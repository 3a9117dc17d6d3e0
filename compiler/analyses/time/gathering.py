"""How often parameters are made whole in one micro batch, each time by the host."""

from tunec.compiler.analyses.memory.sharding import PARAMETERS
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.schemas.caches import cached


def passes(layout: Layout) -> int:
    """Passes over the layers."""
    return 3 if layout.activation_checkpointing.mode == "layer" else 2


def gathers(workload: Workload, layout: Layout) -> int:
    """How often ZeRO's stage 3 gathers a module: in every pass of a micro batch."""
    alone = layout.parallel.data * layout.parallel.sequence == 1
    if layout.parallel.engine != "deepspeed" or layout.zero.stage != PARAMETERS or alone:
        return 0
    return _modules(workload) * passes(layout)


def units(workload: Workload, layout: Layout) -> int:
    """How often FSDP gathers a unit, forward and backward; what is recomputed is whole already.

    A unit is a layer, and under FSDP 1 each half of an adapter too (peft 0.21 `utils/other.py`,
    `fsdp_auto_wrap_policy`: leaves whose weight is trained).
    """
    if not layout.fsdp.version or layout.fsdp.sharding == "none":
        return 0
    leaves = sum(m.copies for m in workload.adapted) if layout.fsdp.version == 1 else 0
    return 2 * (sum(stack.layers for stack in workload.architecture.stacks) + 2 * leaves)


@cached(256)
def _modules(workload: Workload) -> int:
    return sum(module.copies for module in workload.architecture.modules)
