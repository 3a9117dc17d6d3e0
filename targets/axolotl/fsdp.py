"""Rows of Axolotl's YAML for FSDP: `fsdp`, `fsdp_version` and `fsdp_config`, in older words too."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.target import Json
from tunec.targets.accelerate.fsdp import WRAP, sharding_of, true, worded
from tunec.targets.read_only import observed

_CONFIG: Final = "fsdp_config"
_OLDER: Final = "fsdp_"
_SOURCE: Final = (
    "axolotl 0.8.1 to 0.19.0 utils/trainer.py `setup_fsdp_envs`, utils/schemas/validation.py "
    "`check_fsdp_config_kwargs_prefix`: names with the prefix are the older ones"
)
_NAMES: Final = (
    *("version", "sharding_strategy", "reshard_after_forward", "offload_params"),
    *("auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params", "state_dict_type"),
    *("cpu_ram_efficient_loading", "activation_checkpointing"),
)
_SLOTS: Final = (
    *("parallel.engine", "fsdp.version", "fsdp.sharding", "fsdp.offload_params", "fsdp.wrap"),
    *("fsdp.wrap_classes", "fsdp.min_parameters", "fsdp.state_dict", "fsdp.efficient_loading"),
    *("fsdp.checkpointing", "activation_checkpointing.mode"),
)
_STATE_DICT: Final = {"full": "FULL_STATE_DICT", "sharded": "SHARDED_STATE_DICT"}


_VERSION: Final = "fsdp_version"
_KEYS: Final = (
    *("fsdp", _CONFIG),
    *(f"{_CONFIG}.{prefix}{name}" for name in _NAMES for prefix in ("", _OLDER)),
)


def _inside(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The keys of the section by their newer names."""
    return {
        key.removeprefix(f"{_CONFIG}.").removeprefix(_OLDER): value
        for key, value in found.items()
        if key.startswith(f"{_CONFIG}.") and value is not None
    }


def _read(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if not found.get("fsdp") and not found.get(_CONFIG):
        return {}
    inside = _inside(found)
    version = 2 if str(found.get(_VERSION) or inside.get("version", 1)) == "2" else 1
    recomputes = true(inside.get("activation_checkpointing", False))
    read = {
        "parallel.engine": "fsdp",
        "fsdp.version": version,
        "fsdp.sharding": _sharding(found.get("fsdp"), inside, version),
        "fsdp.offload_params": true(inside.get("offload_params", "offload" in _words(found))),
        "fsdp.state_dict": worded(_STATE_DICT, inside.get("state_dict_type", "")),
        "fsdp.efficient_loading": true(inside.get("cpu_ram_efficient_loading", False)),
        "fsdp.checkpointing": recomputes,
        "activation_checkpointing.mode": "layer" if recomputes else None,
        **_wrap(inside),
    }
    return {slot: value for slot, value in read.items() if value is not None}


def _words(found: Mapping[str, Json]) -> list[str]:
    said = found.get("fsdp")
    words = said.split() if isinstance(said, str) else said
    return [str(word) for word in words] if isinstance(words, list) else []


def _sharding(said: Json, inside: Mapping[str, Json], version: int) -> str | None:
    if version == 2:
        return "full" if true(inside.get("reshard_after_forward", True)) else "grad_op"
    words = [sharding_of(word) for word in _words({"fsdp": said})]
    return next(filter(None, words), sharding_of(inside.get("sharding_strategy", "FULL_SHARD")))


def _wrap(inside: Mapping[str, Json]) -> Mapping[str, Any]:
    wrap = worded(WRAP, inside.get("auto_wrap_policy", ""))
    if wrap is None:
        return {}
    names = str(inside.get("transformer_layer_cls_to_wrap", "")) if wrap == "transformer" else ""
    return {
        "fsdp.wrap": wrap,
        "fsdp.wrap_classes": tuple(filter(None, (name.strip() for name in names.split(",")))),
        "fsdp.min_parameters": int(inside.get("min_num_params", 1e8)) if wrap == "size" else 0,
    }


FSDP: Final = (
    observed(_KEYS, _SLOTS, _read, _SOURCE, until="0.13"),
    observed((*_KEYS, _VERSION), _SLOTS, _read, _SOURCE, since="0.13"),
)
