"""Rows of what OpenRLHF passes to DeepSpeed: a flag for the stage, else DeepSpeed's defaults."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json, fixed, named, same
from tunec.targets.deepspeed.reader import offloads, shards, shards_parameters, shards_states
from tunec.targets.openrlhf.packages import SOURCE
from tunec.targets.read_only import as_it_is
from tunec.targets.rows import row

_CONFIG: Final = f"{SOURCE} utils/deepspeed/deepspeed_utils.py `get_train_ds_config`"
_OWN: Final = f"{_CONFIG}: `auto`, which DeepSpeed takes for a key that is absent"

SETTINGS: Final[tuple[tuple[str, Any, Callable[[Plan], bool]], ...]] = (
    ("contiguous_gradients", True, shards),
    ("reduce_scatter", True, shards_states),
    ("reduce_bucket", 500_000_000, shards),
    ("allgather_bucket", 500_000_000, shards_states),
    ("prefetch_bucket", 50_000_000, shards_parameters),
    ("persistence_threshold", 100_000, shards_parameters),
    ("max_live_parameters", 1_000_000_000, shards_parameters),
    ("max_reuse_distance", 1_000_000_000, shards_parameters),
    ("sub_group_size", 1_000_000_000, shards_parameters),
    ("leaf_modules", None, shards_parameters),
    ("offload_param", "none", shards_parameters),
    ("pin_memory", True, offloads),
)
"""deepspeed 0.19.1 to 0.19.6 runtime/zero/config.py `DeepSpeedZeroConfig`, and OpenRLHF's own
settings: no parameters on the host, and pinned host memory."""


def _shards_less(plan: Plan) -> bool:
    """Whether ZeRO shards no parameters: only then the flag's absence has a meaning."""
    return shards(plan) and not shards_parameters(plan)


_OVERLAP: Final = "ds.overlap_comm"
_OFFLOAD: Final = "ds.adam_offload"


def _zpg(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {"zero.hpz_partition": max(found["ds.zpg"], 1)}


ENGINE: Final = (
    fixed("parallel.engine", "deepspeed", f"{SOURCE} utils/utils.py `get_strategy`"),
    same("ds.zero_stage", "zero.stage", _CONFIG, default=2),
    named(
        _OFFLOAD, "zero.offload_optimizer", {"cpu": True, "none": False}, _CONFIG, default="none"
    ),
    same(
        _OVERLAP,
        "zero.overlap_comm",
        f"{_CONFIG}; deepspeed runtime/zero/config.py `overlap_comm_valid`: absent, off",
        default=False,
        when=_shards_less,
    ),
    fixed(
        "zero.overlap_comm",
        value=True,
        source="deepspeed runtime/zero/config.py `overlap_comm_valid`: absent, on at stage 3",
        when=shards_parameters,
    ),
    row(
        ("ds.zpg",),
        ("zero.hpz_partition",),
        lambda plan: {"ds.zpg": plan.zero.hpz_partition},
        _zpg,
        _CONFIG,
        absent={"zero.hpz_partition": 1},
        when=shards_parameters,
    ),
    *(fixed(f"zero.{slot}", value, _OWN, when=when) for slot, value, when in SETTINGS),
    fixed(
        "zero.gather_on_save",
        value=True,
        source=f"{SOURCE} utils/deepspeed/deepspeed.py `save_model`: by "
        "`_consolidated_16bit_state_dict`, whatever the configuration says",
        when=shards_parameters,
    ),
    as_it_is(
        "ds.tensor_parallel_size",
        "parallel.tensor",
        f"{SOURCE} utils/deepspeed/deepspeed.py `setup_distributed`",
        1,
    ),
    as_it_is(
        "ds.ring_attn_size",
        "parallel.sequence",
        f"{SOURCE} utils/deepspeed/deepspeed.py `setup_distributed`",
        1,
    ),
)
