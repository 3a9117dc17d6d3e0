"""Rows of the section `distributed`: FSDP 2's sharding, and recomputed layers."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.target import Entry, Json, constant, fixed, same
from tunec.targets.nemo_automodel.packages import SOURCE
from tunec.targets.rows import on_fsdp, recomputes_each_layer_by_itself, recomputes_layers, row

_CONFIG: Final = f"{SOURCE} components/distributed/config.py `FSDP2Config`"
_UNITS: Final = (
    f"{SOURCE} components/distributed/parallelizer.py `apply_fsdp2_sharding_recursively`"
)
_MESH: Final = f"{SOURCE} recipes/_dist_utils.py `parse_distributed_section`"
_RECOMPUTES: Final = f"{SOURCE} components/distributed/parallelizer.py: checkpoint_wrapper"
_STRATEGY, _COPIES, _KEEPS = (
    f"distributed.{name}" for name in ("strategy", "dp_replicate_size", "reshard_after_forward")
)
_SAVES: Final = f"{SOURCE} components/checkpoint/checkpointing.py `Checkpointer`"
_STRATEGIES: Final = {"fsdp2": "fsdp", "ddp": "ddp"}


def _read_sharding(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The sharding; replicas of shards have no slot value under FSDP 2."""
    copies = found.get(_COPIES)
    if isinstance(copies, int) and copies > 1:
        return {}
    return {"fsdp.sharding": "grad_op" if found.get(_KEEPS) is False else "full"}


def _does(slot: str, value: Any, source: str) -> Entry:
    return fixed(f"fsdp.{slot}", value, source, when=on_fsdp)


ALWAYS_SO: Final[Mapping[str, Any]] = {
    "fsdp.version": 2,
    "fsdp.offload_params": False,
    "fsdp.wrap": "transformer",
    "fsdp.backward_prefetch": "pre",
    "fsdp.state_dict": "sharded",
    "fsdp.efficient_loading": True,
    "fsdp.checkpointing": False,
}
"""Its settings under FSDP, default or written: parameters stay on the devices."""
_SOURCES: Final = {
    "fsdp.version": _MESH,
    "fsdp.wrap": f"{_UNITS}: each module of a list",
    "fsdp.backward_prefetch": f"{_UNITS}: torch's own",
    "fsdp.state_dict": _SAVES,
    "fsdp.efficient_loading": f"{SOURCE} _transformers/infrastructure.py: shards are read alone",
    "fsdp.checkpointing": _RECOMPUTES,
    "fsdp.offload_params": f"{_CONFIG}: offload_policy",
}


def _is_on(value: Json) -> bool | None:
    """recipes/_dist_utils.py `_normalize_activation_checkpointing`; None: selective."""
    if value is None or isinstance(value, bool):
        return bool(value)
    word = str(value).lower()
    if word in ("true", "on", "full", "enabled", "yes"):
        return True
    return False if word in ("false", "off", "none", "disabled", "no") else None


_MODE, _KEY = "activation_checkpointing.mode", "distributed.activation_checkpointing"


def _mode(found: Mapping[str, Json]) -> Mapping[str, Any]:
    is_on = _is_on(found[_KEY])
    return {} if is_on is None else {_MODE: "layer" if is_on else "none"}


ENGINE: Final = (
    constant(_STRATEGY, "fsdp2", _MESH, when=lambda plan: not on_fsdp(plan)),
    row(
        (_STRATEGY,),
        ("parallel.engine",),
        lambda plan: {_STRATEGY: "fsdp2"} if on_fsdp(plan) else {},
        lambda found: (
            {"parallel.engine": _STRATEGIES[found[_STRATEGY]]}
            if found[_STRATEGY] in _STRATEGIES
            else {}
        ),
        _MESH,
        absent={"parallel.engine": "fsdp"},
        when=on_fsdp,
    ),
    same("distributed.tp_size", "parallel.tensor", _MESH, default=1),
    *(constant(f"distributed.{name}", 1, _MESH) for name in ("pp_size", "ep_size")),
    same("distributed.cp_size", "parallel.sequence", _MESH, default=1),
    row(
        (_COPIES, _KEEPS),
        ("fsdp.sharding",),
        lambda plan: {_KEEPS: False} if plan.fsdp.sharding == "grad_op" else {},
        _read_sharding,
        f"{_CONFIG}; {_MESH}: every layer but the last is let go of after its forward pass",
        absent={"fsdp.sharding": "full"},
        when=on_fsdp,
    ),
    *(
        _does(slot.removeprefix("fsdp."), value, _SOURCES[slot])
        for slot, value in ALWAYS_SO.items()
    ),
    _does("forward_prefetch", False, _CONFIG),
    _does("use_orig_params", True, f"{_UNITS}: fully_shard"),
    row(
        (_KEY,),
        (_MODE,),
        lambda plan: {_KEY: recomputes_layers(plan)},
        _mode,
        _RECOMPUTES,
        absent={_MODE: "none"},
    ),
    *recomputes_each_layer_by_itself(_RECOMPUTES),
    fixed("activation_checkpointing.offload", value=False, source=_RECOMPUTES),
)
