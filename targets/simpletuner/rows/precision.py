"""Arithmetic, quantisation and attention, in config.json.

SimpleTuner holds weights, adapters and gradients in one dtype, `weight_dtype`, which follows from
three flags (the end of `parse_cmdline_args`); adapters are added with diffusers' `add_adapter`,
whose modules take the base's dtype, and `Trainer.move_models` casts the whole component once more.
There are no fp32 copies.
"""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, fixed, named, on_deepspeed
from tunec.schemas.frozen import replace
from tunec.schemas.terms import FloatDtype, QuantFormat

WEIGHT_DTYPE: Final = "simpletuner 3.1.6 and 4.10.1, helpers/configuration/cmd_args.py weight_dtype"
TRAINER: Final = "simpletuner 3.1.6 and 4.10.1, helpers/training/trainer.py"

DTYPE_FLAGS: Final = ("mixed_precision", "base_model_precision", "base_model_default_dtype")

MIXED_PRECISION: Final[Mapping[FloatDtype, str]] = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}
_FORMATS: Final[Mapping[QuantFormat, str]] = {
    "none": "no_change",
    "nf4": "nf4-bnb",
    "int8": "int8-quanto",
}
"""Eight bits are quanto's: SimpleTuner has none of bitsandbytes'."""


def weight_dtype(found: Mapping[str, Json]) -> FloatDtype | None:
    """The dtype that the three flags come to; None for fp8."""
    words = {word: dtype for dtype, word in MIXED_PRECISION.items()}
    compute = words.get(found.get("mixed_precision", "bf16"))
    quantised = found.get("base_model_precision", "no_change") != "no_change"
    if quantised and found.get("base_model_default_dtype", "bf16") == "bf16":
        return "bf16"
    return compute


def dtype_flags(plan: Plan) -> Mapping[str, Json]:
    """The three flags for a plan."""
    keys = {"mixed_precision": MIXED_PRECISION[plan.precision.compute]}
    stored = plan.quantization.format
    if stored not in _FORMATS:
        return keys
    keys["base_model_precision"] = _FORMATS[stored]
    if stored != "none":
        keys["base_model_default_dtype"] = "fp32" if plan.precision.compute == "fp32" else "bf16"
    return keys


def _read(found: Mapping[str, Json]) -> Mapping[str, Any]:
    weights = weight_dtype(found)
    words = {word: dtype for dtype, word in MIXED_PRECISION.items()}
    slots: dict[str, Any] = {"quantization.compute": weights}
    slots["precision.compute"] = words.get(found.get("mixed_precision", "bf16"))
    formats = {word: stored for stored, word in _FORMATS.items()}
    stored = formats.get(found.get("base_model_precision", "no_change"))
    slots |= {"quantization.format": stored, "quantization.double": stored == "nf4"}
    return {slot: value for slot, value in slots.items() if value is not None}


def _read_held(found: Mapping[str, Json]) -> Mapping[str, Any]:
    held = None if found.get("deepspeed_config") else weight_dtype(found)
    return {} if held is None else dict.fromkeys(_HELD_IN, held)


_STORED: Final = ("quantization.format", "quantization.double", "quantization.compute")
_HELD_IN: Final = ("states.weights", "states.trainable", "states.gradients")
"""Slots that `weight_dtype` settles, unless DeepSpeed casts and copies."""


def without_deepspeed(plan: Plan) -> bool:
    """Whether accelerate alone does."""
    return not on_deepspeed(plan)


PRECISION: Final = (
    Entry(
        DTYPE_FLAGS,
        ("precision.compute", *_STORED),
        dtype_flags,
        _read,
        f"{WEIGHT_DTYPE}; helpers/training/quantisation: nf4 quantises its scales too, and is "
        "expanded into the weights' dtype",
        absent=((ALWAYS, {slot: _read({})[slot] for slot in ("precision.compute", *_STORED)}),),
    ),
    Entry(
        (*DTYPE_FLAGS, "deepspeed_config"),
        _HELD_IN,
        dtype_flags,
        _read_held,
        WEIGHT_DTYPE,
        absent=((ALWAYS, dict.fromkeys(_HELD_IN, "bf16")),),
        when=without_deepspeed,
    ),
    fixed("quantization.storage", None, "helpers/training/quantisation: bitsandbytes' own uint8"),
    fixed(
        "states.master_weights",
        value=False,
        source=TRAINER,
        when=without_deepspeed,
    ),
    Entry(
        ("disable_tf32",),
        ("precision.tf32",),
        lambda plan: {"disable_tf32": not plan.precision.tf32},
        lambda found: {"precision.tf32": not found["disable_tf32"]},
        "helpers/configuration/cmd_args.py _configure_tf32",
        absent=((ALWAYS, {"precision.tf32": True}),),
    ),
    replace(
        named(
            "attention_mechanism",
            "attention.implementation",
            {"sdpa": "diffusers", "flash_attention_2": "flash-attn-2", "eager": "native-math"},
            "helpers/training/attention_backend.py; from 4.10.0 the default is kohaku-fa-auto",
        ),
        absent=((ALWAYS, {"attention.implementation": "sdpa"}), ("4.10.0", {})),
    ),
)
