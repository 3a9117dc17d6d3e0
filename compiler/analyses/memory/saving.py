"""What saving takes of a device where parameters are sharded: they come whole, one by one."""

from math import prod

from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.phase import Terms
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.workload import Layout, Workload


def saves_whole(layout: Layout) -> bool:
    """Whether a checkpoint holds weights that are gathered from the ranks."""
    if layout.fsdp.version:
        return layout.fsdp.sharding != "none" and layout.fsdp.state_dict == "full"
    on_zero = layout.parallel.engine == "deepspeed" and layout.zero.stage == PARAMETERS
    return on_zero and layout.zero.gather_on_save


def saved(workload: Workload, plan: Sharding) -> Terms:
    """The parameter that is whole while it goes to the host, in bytes: at most the largest.

    DeepSpeed gathers what a module has of its own (0.19.8 `runtime/engine.py`,
    `_zero3_consolidated_16bit_state_dict`), torch one parameter (2.13
    `distributed/_state_dict_utils.py`, `_gather_state_dict`). Traced.
    """
    if plan.fsdp.version:
        whole = plan.fsdp.sharding != "none" and plan.fsdp.state_dict == "full"
        size = plan.parameter if plan.counts.trained else BYTES[plan.states.weights]
    else:
        whole = plan.stage == PARAMETERS and plan.zero.gather_on_save
        size = BYTES[plan.states.weights]
    largest = max((prod(m.shape) for m in workload.architecture.modules), default=0)
    return {"gathered parameters": float(size * largest)} if whole else {}
