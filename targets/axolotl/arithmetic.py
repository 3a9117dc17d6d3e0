"""Rows of Axolotl's YAML for precision, recomputed activations and the engine."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, Phrase, derived, fixed, on_deepspeed, same
from tunec.targets.axolotl.packages import WRITTEN
from tunec.targets.huggingface.arithmetic import recomputes
from tunec.targets.huggingface.fsdp import recomputes_by_fsdp
from tunec.targets.read_only import observed
from tunec.targets.rows import is_quantised, row

_CONFIG: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/config.py `AxolotlInputConfig`"
_DTYPE: Final = "axolotl 0.8.1 to 0.19.0 utils/config/__init__.py `resolve_dtype`"
_SLOTS: Final = (
    *("precision.compute", "precision.loss_scaling", "states.weights", "states.autocast"),
)
_HALVES: Final = ("fp16", "bfloat16", "float16")
_FLAGS: Final = ("bf16", *_HALVES, "deepspeed")


# ── precision ────────────────────────────────────────────────────────────────────────────────────


def _write_precision(plan: Plan) -> Mapping[str, Json]:
    """The precision's keys; `bf16` and `fp16` also switch autocast on, except under DeepSpeed."""
    compute = plan.precision.compute
    engine = {"deepspeed": "ds_config.json"} if on_deepspeed(plan) else {}
    return {"bf16": compute == "bf16", "fp16": compute == "fp16", **engine}


def _precision(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The precision.

    `bf16: auto`, the default, depends on the device and sets nothing without fp16.
    """
    bf16 = found.get("bf16", "auto") or found.get("bfloat16")
    half = bool(found.get("fp16"))
    if bf16 == "auto" and not half:
        return {}
    dtype = "fp16" if bf16 == "auto" or (half and not bf16) else "bf16" if bf16 else "fp32"
    weights = "fp16" if found.get("float16") and dtype == "fp32" else dtype
    scaling = "dynamic" if half and dtype == "fp16" else "none"
    casts = (bf16 is True or half) and not found.get("deepspeed")
    return {
        "precision.compute": weights,
        "precision.loss_scaling": scaling,
        "states.weights": weights,
        "quantization.compute": weights,
        "states.autocast": bool(casts),
    }


def _by_device(key: str) -> Phrase:
    """The precision of `bf16: auto`, which is `key` on some devices."""

    def say(found: Mapping[str, Json]) -> Mapping[str, Any]:
        is_auto = found.get("bf16", "auto") == "auto" and not any(map(found.get, _HALVES))
        return _precision({**found, "bf16": False, key: True}) if is_auto else {}

    beside = (*_HALVES, "deepspeed")
    on_devices = ("bf16", key == "bf16")
    return Phrase(("bf16",), say, _DTYPE, beside, by_default=True, on_devices=on_devices)


BY_DEVICE: Final = (_by_device("bf16"), _by_device("fp16"))


def _older_precision(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The precision before 0.9, where `bf16: auto` goes by the device even beside fp16."""
    return {} if found.get("bf16", "auto") == "auto" else _precision(found)


def _of_precision(slots: tuple[str, ...], when: Callable[[Plan], bool]) -> tuple[Entry, Entry]:
    older = row(_FLAGS, slots, _write_precision, _older_precision, _DTYPE, until="0.9", when=when)
    return older, row(_FLAGS, slots, _write_precision, _precision, _DTYPE, since="0.9", when=when)


def _is_widened(plan: Plan) -> bool:
    """Whether the rest of a quantized base is in fp32, although the compute dtype differs."""
    return is_quantised(plan) and plan.states.weights == "fp32" != plan.precision.compute


def _is_quantised_alike(plan: Plan) -> bool:
    return is_quantised(plan) and not _is_widened(plan)


_WEIGHTS: Final = "states.weights"
PRECISION: Final = (
    *_of_precision(_SLOTS, lambda plan: not is_quantised(plan)),
    *_of_precision((*_SLOTS, "quantization.compute"), _is_quantised_alike),
    *_of_precision(
        (*(each for each in _SLOTS if each != _WEIGHTS), "quantization.compute"), _is_widened
    ),
    fixed(
        _WEIGHTS,
        "fp32",
        "trl 0.27.0 trainer/dpo_trainer.py: `prepare_model_for_kbit_training`",
        until="0.15",
        when=_is_widened,
    ),
    row(
        ("tf32",),
        ("precision.tf32",),
        lambda plan: {"tf32": plan.precision.tf32},
        lambda found: {"precision.tf32": found["tf32"]} if found["tf32"] != "auto" else {},
        f"{_CONFIG}: `auto` from 0.13",
    ),
)


# ── recomputed activations ───────────────────────────────────────────────────────────────────────

_MODE: Final = "activation_checkpointing.mode"
_OFFLOAD: Final = "activation_checkpointing.offload"
_KEY: Final = "gradient_checkpointing"
_VARIANT: Final = f"{_KEY}_kwargs.use_reentrant"
_REENTRANT: Final = "activation_checkpointing.reentrant"
_OTHERWISE: Final = ("rl", "unfrozen_parameters")


def _write_checkpointing(plan: Plan) -> Mapping[str, Json]:
    return {_KEY: plan.activation_checkpointing.mode == "layer"}


def _checkpointing(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """`offload` and `unsloth` recompute too, and move what is kept to the host."""
    on = bool(found.get(_KEY))
    if not on and any(found.get(key) for key in _BY_FSDP):
        return {}
    return {_MODE: "layer" if on else "none"}


_BY_FSDP: Final = tuple(
    f"fsdp_config.{name}" for name in ("activation_checkpointing", "fsdp_activation_checkpointing")
)
"""The keys by which FSDP recomputes, under the newer and the older name; other rows read them."""


def _offloading(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Whether activations are offloaded to RAM; no slot stands for offload to disk."""
    words = (found.get(_KEY), found.get("activation_offloading"))
    if any(word in ("disk", "offload_disk") for word in words):
        return {}
    asked = words[0] in ("offload", "unsloth") or words[1] not in (None, False)
    return {_OFFLOAD: asked}


def _variant(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The variant: reentrant by default, except in runs with rewards, pairs or partial training."""
    said = found.get(_VARIANT)
    return {_REENTRANT: not any(map(found.get, _OTHERWISE)) if said is None else said}


def _by_the_model(plan: Plan) -> bool:
    return not recomputes_by_fsdp(plan)


CHECKPOINTING: Final = (
    fixed("activation_checkpointing.segment", 1, f"{_CONFIG}: a layer by itself"),
    fixed("activation_checkpointing.gap", 0, f"{_CONFIG}: every layer"),
    row(
        (_KEY, *_BY_FSDP),
        (_MODE,),
        _write_checkpointing,
        _checkpointing,
        _CONFIG,
        absent={_MODE: "none"},
        when=_by_the_model,
    ),
    derived(_KEY, lambda _: False, f"{_CONFIG}: beside FSDP's own", when=recomputes_by_fsdp),
    observed(
        (_KEY,),
        (_OFFLOAD,),
        _offloading,
        "axolotl 0.8.1 utils/models.py `ModelLoader`: CPU_Offloaded_Gradient_Checkpointer",
        until=WRITTEN,
        absent={_OFFLOAD: False},
    ),
    observed(
        (_KEY, "activation_offloading"),
        (_OFFLOAD,),
        _offloading,
        "axolotl 0.13.2 to 0.19.0 utils/schemas/validation.py "
        "`check_gradient_checkpointing_w_offload`; it is not written: with adapters it takes the "
        "place of recomputing (core/builders/base.py `_configure_gradient_checkpointing`)",
        since=WRITTEN,
        absent={_OFFLOAD: False},
    ),
    row(
        (_VARIANT, *_OTHERWISE),
        (_REENTRANT,),
        lambda plan: {_VARIANT: plan.activation_checkpointing.reentrant},
        _variant,
        "axolotl 0.8.1 to 0.19.0 utils/config/__init__.py `normalize_config`; "
        "core/builders/base.py `_configure_gradient_checkpointing`",
        absent={_REENTRANT: True},
        when=recomputes,
    ),
)


# ── the engine ───────────────────────────────────────────────────────────────────────────────────

PARALLEL: Final = (
    row(
        ("deepspeed",),
        ("parallel.engine",),
        lambda _: {"deepspeed": "ds_config.json"},
        lambda found: {"parallel.engine": "deepspeed"} if found["deepspeed"] else {},
        _CONFIG,
        when=on_deepspeed,
    ),
    same("tensor_parallel_size", "parallel.tensor", _CONFIG, since=WRITTEN, default=1),
    same(
        "context_parallel_size",
        "parallel.sequence",
        f"{_CONFIG}; sequence_parallel_degree is its older name",
        since=WRITTEN,
        default=1,
    ),
    same("sequence_parallel_degree", "parallel.sequence", _CONFIG, until=WRITTEN, default=1),
)
