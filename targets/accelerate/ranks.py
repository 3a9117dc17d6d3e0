"""How a plan's processes are placed on nodes, and which ranks share a sequence or a layer.

accelerate passes the ranks of a sequence to DeepSpeed (Ulysses) in an object that no trainer's own
file can hold: transformers 5.23.0 training_args.py leaves a given `parallelism_config` a mapping.
"""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, in_no_plan
from tunec.targets.accelerate.packages import PACKAGE


def processes(plan: Plan) -> tuple[int, int] | None:
    """Nodes, and processes on each; None if they cannot be distributed evenly.

    Nodes are filled one after the other, so a plan with idle devices leaves whole nodes idle.
    """
    world, per_node = plan.parallel.world, plan.devices.per_node
    if world <= per_node:
        return 1, world
    nodes, rest = divmod(world, per_node)
    return None if rest else (nodes, per_node)


def uses_every_device(plan: Plan) -> bool:
    """Whether there is a process for each device."""
    return plan.parallel.world == plan.devices.nodes * plan.devices.per_node


def leaves_devices_idle(plan: Plan) -> bool:
    """Whether there are more devices than processes."""
    return not uses_every_device(plan)


def counted(plan: Plan) -> tuple[int, int]:
    """Nodes, and processes on each; if they are uneven, the row of the world size reports it."""
    return processes(plan) or (plan.devices.nodes, plan.devices.per_node)


_SECTION: Final = "parallelism_config.parallelism_config_"
_SP, _CP, _TP = (f"{_SECTION}{name}_size" for name in ("sp", "cp", "tp"))
_SOURCE: Final = "accelerate 1.12.0 to 1.15.0 utils/launch.py "
_ENVIRONMENT: Final = f"{_SOURCE}`prepare_extend_env_parallelism_config`"


def _write_sequence(plan: Plan) -> Mapping[str, Json]:
    """Write sequence parallelism; the attention is named because DeepSpeed checks the model's.

    The product of the written data parallel widths is the one by which the batch size is counted
    (accelerator.py `_prepare_deepspeed`).
    """
    ways = plan.parallel.sequence
    if ways == 1 or plan.parallel.engine != "deepspeed":
        return {}
    return {
        f"{_SECTION}dp_shard_size": plan.parallel.data,
        _SP: ways,
        f"{_SECTION}sp_backend": "deepspeed",
        f"{_SECTION}sp_attn_implementation": plan.attention.implementation,
        f"{_SECTION}sp_seq_length_is_variable": True,
    }


def _read_sequence(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The number of ranks that share one sequence, by Ulysses or by FSDP's ring."""
    ways = [size for key in (_SP, _CP) if isinstance(size := found.get(key), int) and size > 1]
    return {"parallel.sequence": ways[0] if ways else 1}


_WHOLE: Final = ((ALWAYS, {"parallel.sequence": 1}),)

SEQUENCES: Final = (
    Entry(
        (
            *(_SP, _CP, f"{_SECTION}dp_shard_size", f"{_SECTION}sp_backend"),
            *(f"{_SECTION}sp_attn_implementation", f"{_SECTION}sp_seq_length_is_variable"),
        ),
        ("parallel.sequence",),
        _write_sequence,
        _read_sequence,
        _ENVIRONMENT,
        since="1.12",
        absent=_WHOLE,
        package=PACKAGE,
    ),
    Entry(
        (),
        ("parallel.sequence",),
        lambda _: {},
        lambda _: {},
        "accelerate 0.30.1 to 1.11.0: no group of ranks that DeepSpeed has share a sequence",
        until="1.12",
        absent=_WHOLE,
        package=PACKAGE,
    ),
    Entry(
        (_TP,),
        ("parallel.tensor",),
        lambda _: {},
        lambda found: {"parallel.tensor": found[_TP]},
        "accelerate 1.10.1 to 1.15.0 parallelism_config.py `ParallelismConfig.tp_size`: of a model "
        "that the script has loaded in shards",
        since="1.10",
        when=in_no_plan,
        package=PACKAGE,
    ),
)
