"""What saving takes of a device where parameters are sharded: they come whole, one by one."""

from math import prod

from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.fsdp_units import unit_sizes
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.timeline import Sizes
from tunec.compiler.analyses.memory.weights import second_shards
from tunec.compiler.analyses.memory.workload import Layout, Workload


def saves_whole(layout: Layout) -> bool:
    """Whether a checkpoint holds weights that are gathered from the ranks."""
    if layout.fsdp.version:
        return layout.fsdp.sharding != "none" and layout.fsdp.state_dict == "full"
    on_zero = layout.parallel.engine == "deepspeed" and layout.zero.stage == PARAMETERS
    return on_zero and layout.zero.gather_on_save


def saved(workload: Workload, plan: Sharding) -> Sizes:
    """What is whole while it goes to the host, in bytes: at most the largest.

    DeepSpeed gathers what a module has of its own (0.19.8 `runtime/engine.py`,
    `_zero3_consolidated_16bit_state_dict`), torch one parameter, and then one of its moments (2.13
    `distributed/_state_dict_utils.py`, `_gather_state_dict`), version 1 of FSDP a unit
    (`distributed/fsdp/_unshard_param_utils.py`, `_unshard_fsdp_state_params`). Traced.
    """
    if not _gathers(plan):
        return {}
    if plan.fsdp.version == 1:
        units = unit_sizes(workload, plan.fsdp, plan.states)
        return {"gathered parameters": max(size for size, _ in units)}
    wide = plan.fsdp.version and plan.counts.trained
    size = plan.parameter if wide else BYTES[plan.states.weights]
    largest = max((prod(m.shape) for m in workload.architecture.modules), default=0)
    second = {} if plan.fsdp.version else _made_again(plan)
    return {"gathered parameters": float(size * largest), **second}


def _made_again(plan: Sharding) -> Sizes:
    """Second shards, which the step has let go and each release makes anew (`second_shards`).

    The last is made before its parameter goes (deepspeed 0.19.8 `runtime/zero/
    partition_parameters.py`, `_partition_param_sec`); traced with a tied head and one of its own.
    """
    shards = 0.0 if plan.parameters_away else second_shards(plan)
    return {"second shards": shards} if shards else {}


def _gathers(plan: Sharding) -> bool:
    if plan.fsdp.version:
        return plan.fsdp.sharding != "none" and plan.fsdp.state_dict == "full"
    return plan.stage == PARAMETERS and plan.zero.gather_on_save
