"""Rows of LLaMA-Factory's own arguments: precision, and recomputed activations."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import (
    Entry,
    Json,
    constant,
    fixed,
    in_no_plan,
    on_deepspeed,
    same,
)
from tunec.targets.huggingface.arithmetic import has_flag
from tunec.targets.huggingface.fsdp import recomputes_by_fsdp
from tunec.targets.read_only import observed
from tunec.targets.rows import has_adapter, in_four_bits, row

_MODEL: Final = "llamafactory 0.9.1 to 0.9.5 hparams/model_args.py `ModelArguments`"
_BNB: Final = (
    "llamafactory 0.9.1 to 0.9.5 model/model_utils/quantization.py `configure_quantization`"
)
_DTYPE: Final = (
    "llamafactory 0.9.1 to 0.9.5 hparams/parser.py `get_train_args`: `model_args.compute_dtype`"
)


# ── precision ────────────────────────────────────────────────────────────────────────────────────

_KEYS: Final = ("bf16", "fp16", "pure_bf16", "deepspeed", "finetuning_type")
_COMPUTE: Final = ("precision.compute", "precision.loss_scaling", "states.autocast")
_PACKED: Final = ("quantization.compute", "quantization.storage")


def _is_pure(plan: Plan) -> bool:
    """Whether the trained weights are bf16 too, without autocast."""
    return plan.precision.compute == "bf16" and not has_flag(plan)


def _write_precision(plan: Plan) -> Mapping[str, Json]:
    """Write the flags; with all three off, matrix products have the dtype of the fp32 weights."""
    flag = plan.precision.compute if has_flag(plan) else ""
    engine = {"deepspeed": "ds_config.json"} if on_deepspeed(plan) else {}
    return {
        "bf16": flag == "bf16",
        "fp16": flag == "fp16",
        "pure_bf16": _is_pure(plan),
        "finetuning_type": "lora" if has_adapter(plan) else "full",
        **engine,
    }


def _precision(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Read the flags: `pure_bf16` loads and trains in bfloat16, without autocast."""
    pure = found.get("pure_bf16") is True
    bf16, fp16 = found.get("bf16") is True, found.get("fp16") is True
    scaling = {"precision.loss_scaling": "dynamic" if fp16 else "none"}
    casts = (bf16 or fp16) and not pure and not found.get("deepspeed")
    compute = "bf16" if bf16 or pure else "fp16" if fp16 else None
    is_kept = pure or found.get("finetuning_type", "lora") == "lora" or found.get("deepspeed")
    known = {
        "precision.compute": compute,
        "quantization.compute": compute,
        "quantization.storage": compute,
        "states.weights": compute if is_kept else "fp32",
    }
    return {**scaling, "states.autocast": casts, **(known if compute else {})}


def _has_16_bits(plan: Plan) -> bool:
    return plan.precision.compute != "fp32"


def _of_precision(slots: tuple[str, ...], **more: Any) -> Entry:
    return row(_KEYS, slots, _write_precision, _precision, f"{_DTYPE}; {_BNB}", **more)


PRECISION: Final = (
    observed(
        _KEYS,
        (*_COMPUTE, *_PACKED, "states.weights"),
        _precision,
        f"{_DTYPE}; {_BNB}: bnb_4bit_quant_storage; model/adapter.py `init_adapter`: "
        "cast_trainable_params_to_fp32",
        absent={"precision.loss_scaling": "none", "states.autocast": False},
        when=in_no_plan,
    ),
    _of_precision(_COMPUTE, when=lambda plan: _has_16_bits(plan) and not in_four_bits(plan)),
    _of_precision((*_COMPUTE, *_PACKED), when=in_four_bits),
    _of_precision(
        tuple(slot for slot in _COMPUTE if slot != "precision.compute"),
        when=lambda plan: not _has_16_bits(plan),
    ),
)


# ── recomputed activations ───────────────────────────────────────────────────────────────────────

_RECOMPUTES: Final = "llamafactory 0.9.1 to 0.9.5 model/model_utils/checkpointing.py"
_MODE: Final = "activation_checkpointing.mode"
_VARIANT: Final = "activation_checkpointing.reentrant"
_OFF: Final = "disable_gradient_checkpointing"


def _checkpointing(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Whether layers are recomputed; the Trainer's own flag turns it on again."""
    off = found.get(_OFF) and not found.get("gradient_checkpointing")
    return {_MODE: "none" if off else "layer"}


def _by_the_model(plan: Plan) -> bool:
    return not recomputes_by_fsdp(plan)


def _recomputes(plan: Plan) -> bool:
    return _by_the_model(plan) and plan.activation_checkpointing.mode == "layer"


CHECKPOINTING: Final = (
    fixed("activation_checkpointing.segment", 1, f"{_RECOMPUTES}: a layer by itself"),
    fixed("activation_checkpointing.gap", 0, f"{_RECOMPUTES}: every layer that is trained"),
    row(
        (_OFF, "gradient_checkpointing"),
        (_MODE,),
        lambda plan: {_OFF: plan.activation_checkpointing.mode == "none"},
        _checkpointing,
        f"{_MODEL}; {_RECOMPUTES} `prepare_model_for_training`: on by default",
        absent={_MODE: "layer"},
        when=_by_the_model,
    ),
    constant(
        _OFF,
        True,
        f"{_RECOMPUTES}: beside FSDP's own, layers would recompute twice",
        when=recomputes_by_fsdp,
    ),
    same(
        "use_unsloth_gc",
        "activation_checkpointing.offload",
        f"{_MODEL}; model/model_utils/checkpointing.py "
        "`get_unsloth_gradient_checkpointing_func`: hidden_states.to('cpu')",
        default=False,
    ),
    same(
        "use_reentrant_gc",
        _VARIANT,
        f"{_MODEL}, in 0.9.3 and not in 0.9.1",
        since="0.9.2",
        default=True,
        when=_recomputes,
    ),
    fixed(
        _VARIANT,
        True,
        "llamafactory 0.9.1 model/model_utils/checkpointing.py `prepare_model_for_training`",
        until="0.9.2",
    ),
)
