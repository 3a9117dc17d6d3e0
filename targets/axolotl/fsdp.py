"""Rows of Axolotl's YAML for FSDP: `fsdp`, `fsdp_version` and `fsdp_config`, with older names."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json, fixed
from tunec.targets.accelerate.fsdp import WRAP, on_first, on_second, sharding_of, true, worded
from tunec.targets.axolotl.packages import WRITTEN
from tunec.targets.huggingface.fsdp import recomputes_by_fsdp
from tunec.targets.read_only import observed
from tunec.targets.rows import on_fsdp, row

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
_MODE: Final = "activation_checkpointing.mode"
_SLOTS: Final = (
    *("parallel.engine", "fsdp.version", "fsdp.sharding", "fsdp.offload_params", "fsdp.wrap"),
    *("fsdp.wrap_classes", "fsdp.min_parameters", "fsdp.state_dict", "fsdp.efficient_loading"),
    "fsdp.checkpointing",
)
_STATE_DICT: Final = {"full": "FULL_STATE_DICT", "sharded": "SHARDED_STATE_DICT"}


_VERSION: Final = "fsdp_version"
_KEYS: Final = (
    *("fsdp", _CONFIG),
    *(f"{_CONFIG}.{prefix}{name}" for name in _NAMES for prefix in ("", _OLDER)),
)


def _inside(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The keys of the section under their newer names."""
    return {
        key.removeprefix(f"{_CONFIG}.").removeprefix(_OLDER): value
        for key, value in found.items()
        if key.startswith(f"{_CONFIG}.") and value is not None
    }


def _read(found: Mapping[str, Json]) -> Mapping[str, Any]:
    inside = _inside(found)
    if not found.get("fsdp") and not found.get(_CONFIG) and not inside:
        return {}
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
        **_wrap(inside, by_word="auto_wrap" in _words(found)),
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


def _wrap(inside: Mapping[str, Json], *, by_word: bool) -> Mapping[str, Any]:
    """How units are cut: by a key, or layer by layer by the word `auto_wrap`.

    transformers 4.51.3 to 5.16.1 training_args.py `_process_fsdp_args`.
    """
    by_layer = by_word and not inside.get("min_num_params")
    wrap = worded(WRAP, inside.get("auto_wrap_policy", WRAP["transformer"] if by_layer else ""))
    if wrap is None:
        return {}
    names = str(inside.get("transformer_layer_cls_to_wrap", "")) if wrap == "transformer" else ""
    return {
        "fsdp.wrap": wrap,
        "fsdp.wrap_classes": tuple(filter(None, (name.strip() for name in names.split(",")))),
        "fsdp.min_parameters": int(inside.get("min_num_params", 1e8)) if wrap == "size" else 0,
    }


_ORIGINAL: Final = tuple(f"{_CONFIG}.{prefix}use_orig_params" for prefix in ("", _OLDER))


def _original(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Original parameters in version 1, where the Trainer turns them on by default."""
    inside = _inside(found)
    is_first = str(found.get(_VERSION) or inside.get("version", 1)) != "2"
    said = true(inside.get("use_orig_params", True))
    return {"fsdp.use_orig_params": said} if is_first else {}


# ── what is written ──────────────────────────────────────────────────────────────────────────────


def _write(plan: Plan) -> Mapping[str, Json]:
    fsdp = plan.fsdp
    inside: dict[str, Json] = {
        "reshard_after_forward": fsdp.sharding == "full",
        "offload_params": fsdp.offload_params,
        "cpu_ram_efficient_loading": fsdp.efficient_loading,
        "activation_checkpointing": fsdp.checkpointing,
        "state_dict_type": _STATE_DICT[fsdp.state_dict],
    }
    if fsdp.wrap != "none":  # a word that Axolotl's validator does not take
        inside["auto_wrap_policy"] = WRAP[fsdp.wrap]
    if fsdp.wrap_classes:
        inside["transformer_layer_cls_to_wrap"] = ",".join(fsdp.wrap_classes)
    if fsdp.wrap == "size":
        inside["min_num_params"] = fsdp.min_parameters
    return {_VERSION: fsdp.version, **{f"{_CONFIG}.{key}": each for key, each in inside.items()}}


_FULLY_SHARD: Final = "torch 2.13 distributed/fsdp/_fully_shard: version 2 has no such switch"
_TRAINER: Final = (
    "axolotl 0.13.2 to 0.19.0 core/builders/base.py hands `fsdp_config` on; transformers 4.57.1 to "
    "5.16.1 training_args.py `_process_fsdp_args`"
)
FSDP: Final = (
    observed(_KEYS, (*_SLOTS, _MODE), _read, _SOURCE, until=WRITTEN),
    row((*_KEYS, _VERSION), _SLOTS, _write, _read, _SOURCE, since=WRITTEN, when=on_fsdp),
    row(
        (*_KEYS, _VERSION), (_MODE,), _write, _read, _SOURCE, since=WRITTEN, when=recomputes_by_fsdp
    ),
    row(
        (*_ORIGINAL, _VERSION),
        ("fsdp.use_orig_params",),
        lambda plan: {_VERSION: 1, _ORIGINAL[0]: plan.fsdp.use_orig_params},
        _original,
        _TRAINER,
        since=WRITTEN,
        absent={"fsdp.use_orig_params": True},
        when=on_first,
    ),
    fixed("fsdp.backward_prefetch", "none", _TRAINER, when=on_first),
    fixed("fsdp.forward_prefetch", value=False, source=_TRAINER, when=on_first),
    fixed("fsdp.backward_prefetch", "pre", _FULLY_SHARD, when=on_second),
    fixed("fsdp.forward_prefetch", value=False, source=_FULLY_SHARD, when=on_second),
    fixed("fsdp.use_orig_params", value=True, source=_FULLY_SHARD, when=on_second),
)
