"""Rows of torchtune's model and checkpointer: what is trained, and in which dtype."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.target import Json, fixed
from tunec.targets.read_only import as_it_is, observed
from tunec.targets.torchtune.packages import SOURCE

Found = Mapping[str, Json]
Values = Mapping[str, Any]
COMPONENT: Final = "model._component_"
_BUILDERS: Final = f"{SOURCE} torchtune/models/*/_model_builders.py"
_LORA: Final = ("lora_", "qlora_")
_PEFT: Final = {"q_proj": "q_proj", "k_proj": "k_proj", "v_proj": "v_proj", "output_proj": "o_proj"}
_MLP: Final = ("gate_proj", "down_proj", "up_proj")
_OUTPUT: Final = "lm_head"


def builder(found: Found) -> str:
    """The function that builds the model, without its module."""
    return str(found.get(COMPONENT, "")).rpartition(".")[2]


def _is_lora(found: Found) -> bool:
    return builder(found).startswith(_LORA)


_SLOTS: Final = (
    *("adapter.kind", "adapter.rank", "adapter.alpha", "adapter.dropout", "adapter.dora"),
    *("adapter.rslora", "adapter.parameters"),
)
_ARGUMENTS: Final = ("lora_rank", "lora_alpha", "lora_dropout", "use_dora")


def _adapter(found: Found) -> Values:
    """The arguments of LoRA's builders, with their defaults."""
    if not _is_lora(found):
        return {"adapter.kind": "none"}
    rank, alpha, dropout, dora = (
        found.get(f"model.{name}", usual)
        for name, usual in zip(_ARGUMENTS, (8, 16, 0.0, False), strict=True)
    )
    values = ("lora", rank, float(alpha), float(dropout), bool(dora), False, ())
    return dict(zip(_SLOTS, values, strict=True))


def _targets(found: Found) -> Values:
    """The target layers under transformers' names; those for images have no slot value."""
    names = found.get("model.lora_attn_modules")
    if not _is_lora(found) or not isinstance(names, list) or not {*names} <= {*_PEFT}:
        return {}
    chosen = [_PEFT[name] for name in names]
    chosen += _MLP if found.get("model.apply_lora_to_mlp") is True else ()
    chosen += (_OUTPUT,) if found.get("model.apply_lora_to_output") is True else ()
    return {"adapter.targets": tuple(chosen)}


def _kind(found: Found) -> Values:
    is_seeing = "vision" in builder(found)
    return {"model.kind": "vision-language" if is_seeing else "causal-lm"}


def _stored(found: Found) -> Values:
    """`qlora_` builders store the frozen base as NF4, and its scales in int8."""
    is_packed = builder(found).startswith("qlora_") or found.get("model.quantize_base") is True
    if not is_packed:
        return {"quantization.format": "none"}
    compute = found.get("dtype")
    known = {"quantization.compute": compute} if compute in _DTYPES else {}
    return {"quantization.format": "nf4", "quantization.double": True, **known}


_DTYPES: Final = ("bf16", "fp32")


def _precision(found: Found) -> Values:
    """One dtype for weights, gradients and moments: no autocast, and no fp16."""
    dtype = found["dtype"]
    if dtype not in _DTYPES:
        return {}
    return {
        "precision.compute": dtype,
        "precision.loss_scaling": "none",
        "states.weights": dtype,
        "states.autocast": False,
    }


MODEL: Final = (
    as_it_is(
        "checkpointer.checkpoint_dir",
        "model.path",
        f"{SOURCE} torchtune/training/checkpointing/_checkpointer.py `FullModelHFCheckpointer`",
    ),
    observed((COMPONENT,), ("model.kind",), _kind, _BUILDERS),
    observed(
        ("dtype",),
        ("precision.compute", "precision.loss_scaling", "states.weights", "states.autocast"),
        _precision,
        f"{SOURCE} torchtune/training/precision.py `get_dtype`; recipes refuse fp16",
    ),
    observed(
        (COMPONENT, "model.quantize_base", "dtype"),
        ("quantization.format", "quantization.double", "quantization.compute"),
        _stored,
        f"{SOURCE} torchtune/modules/peft/lora.py `LoRALinear`: torchao's `to_nf4`",
    ),
    fixed("model.trust_remote_code", False, f"{SOURCE}: its model classes are its own"),
)
ADAPTER: Final = (
    observed((COMPONENT, *(f"model.{name}" for name in _ARGUMENTS)), _SLOTS, _adapter, _BUILDERS),
    observed(
        (
            COMPONENT,
            *(f"model.{name}" for name in ("lora_attn_modules", "apply_lora_to_mlp")),
            "model.apply_lora_to_output",
        ),
        ("adapter.targets",),
        _targets,
        f"{SOURCE} torchtune/models/convert_weights.py `_TO_PEFT_TARGET_MODULES`",
    ),
)
