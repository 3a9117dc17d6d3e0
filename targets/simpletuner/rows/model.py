"""The model, its adapters and images, its precision and attention, in config.json.

SimpleTuner holds weights, adapters and gradients in one dtype, `weight_dtype`, which follows from
three flags (the end of `parse_cmdline_args`); adapters are added with diffusers' `add_adapter`,
whose modules take the base's dtype, and `Trainer.move_models` casts the whole component once more.
There are no fp32 copies.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, derived, fixed, named
from tunec.schemas.frozen import replace
from tunec.schemas.terms import FloatDtype, QuantFormat
from tunec.targets.rows import has_adapter, without_deepspeed
from tunec.targets.simpletuner import families
from tunec.targets.simpletuner.rows import fsdp

ADAPTERS: Final = "simpletuner 3.1.6 and 4.10.1, helpers/models/common.py add_lora_adapter"


def _model_entry(since: str | None, until: str | None) -> Entry:
    """The model's keys for releases that know the same flavours."""

    def write(plan: Plan) -> Mapping[str, Json]:
        keys = {"pretrained_model_name_or_path": plan.model.path}
        family = families.of_model(plan.model)
        if family is not None:
            keys["model_family"] = family.name
        known = families.flavour_of(plan.model)
        if known is None or not known[0].knows(known[1], Version(since or "0")):
            return keys
        return {**keys, "model_flavour": known[1]}

    return Entry(
        ("model_family", "model_flavour", "pretrained_model_name_or_path"),
        ("model.path", "model.family"),
        write,
        _read_model,
        "helpers/models/registry.py; helpers/models/common.py setup_model_flavour",
        since=since,
        until=until,
    )


_CHANGES: Final = sorted(
    {v for each in families.FAMILIES for v in each.added.values()}, key=Version
)
"""The releases from which on more flavours are known."""


def _read_model(found: Mapping[str, Json]) -> Mapping[str, Any]:
    family = families.named(str(found.get("model_family", "")))
    path = found.get("pretrained_model_name_or_path") or _repository(family, found)
    slots = {"model.path": path, "model.family": family.denoiser if family else None}
    return {slot: value for slot, value in slots.items() if value is not None}


def _repository(family: families.Family | None, found: Mapping[str, Json]) -> str | None:
    """The repository that `setup_model_flavour` loads without a path; by default a flavour's."""
    if family is None:
        return None
    flavour = str(found.get("model_flavour") or family.default)
    return family.flavours.get(flavour)


def _write_adapter(plan: Plan) -> Mapping[str, Json]:
    return {
        "model_type": "lora",
        "lora_type": "standard",
        "lora_rank": plan.adapter.rank,
        "lora_alpha": plan.adapter.alpha,
        "lora_dropout": plan.adapter.dropout,
        "use_dora": plan.adapter.dora,
    }


def _read_adapter(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get("model_type") != "lora" or found.get("lora_type", "standard") != "standard":
        return {}
    rank = int(found.get("lora_rank", 16))
    alpha = found.get("lora_alpha")
    return {
        "adapter.kind": "lora",
        "adapter.rank": rank,
        "adapter.alpha": float(rank if alpha is None else alpha),
        "adapter.dropout": float(found.get("lora_dropout", 0.1)),
        "adapter.dora": found.get("use_dora", False),
    }


_WITHOUT: Final[Mapping[str, Any]] = {
    "adapter.kind": "none",
    "adapter.rank": 0,
    "adapter.alpha": 0.0,
    "adapter.dropout": 0.0,
    "adapter.dora": False,
    "adapter.targets": (),
}
"""The values of the adapter's slots without an adapter."""


def _write_targets(plan: Plan) -> Mapping[str, Json]:
    targets = plan.adapter.targets
    return {} if isinstance(targets, str) else {"peft_lora_target_modules": list(targets)}


def _read_targets(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {"adapter.targets": found["peft_lora_target_modules"]}


def _has_other_targets(plan: Plan) -> bool:
    """Whether the adapters target other modules than the family's default."""
    if not has_adapter(plan):
        return False
    family = families.of_model(plan.model)
    own = frozenset(family.targets) if family else None
    return own is None or own != frozenset(plan.adapter.targets)


def _write_resolution(plan: Plan) -> Mapping[str, Json]:
    if plan.data.image_width != plan.data.image_height:
        return {}
    return {"resolution": plan.data.image_width, "resolution_type": "pixel_area"}


def _read_resolution(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get("resolution_type", "pixel_area") == "area":
        return {}
    side = int(found.get("resolution", 1024))
    return {"data.image_width": side, "data.image_height": side}


def _fast_schedule(plan: Plan) -> bool | None:
    """The flag that the distilled FLUX needs for training; None: another model."""
    known = families.flavour_of(plan.model)
    return True if known is not None and known[1] == "schnell" else None


MODEL: Final = (
    *(_model_entry(since, until) for since, until in pairwise((None, *_CHANGES, None))),
    derived(
        "flux_fast_schedule",
        _fast_schedule,
        "helpers/models/flux/model.py check_user_config: Schnell requires --flux_fast_schedule",
    ),
    derived(
        "conditioning_multidataset_sampling",
        lambda plan: "combined" if len(plan.data.references) > 1 else None,
        "simpletuner 3.1.6 and 4.10.1, helpers/training/collate.py: by default one of several "
        "pictures is drawn",
    ),
    Entry(
        ("model_type", "lora_type", "lora_rank", "lora_alpha", "lora_dropout", "use_dora"),
        ("adapter.kind", "adapter.rank", "adapter.alpha", "adapter.dropout", "adapter.dora"),
        _write_adapter,
        _read_adapter,
        f"{ADAPTERS}: without them alpha is the rank, and dropout is 0.1",
        when=has_adapter,
    ),
    Entry(
        ("model_type",),
        tuple(_WITHOUT),
        lambda _: {"model_type": "full"},
        lambda found: _WITHOUT if found["model_type"] == "full" else {},
        ADAPTERS,
        when=lambda plan: not has_adapter(plan),
    ),
    Entry(
        (),
        ("adapter.targets",),
        lambda _: {},
        lambda _: {},
        "helpers/models/common.py get_lora_target_layers: before 3.3.1 only the family's own",
        until="3.3.1",
        when=_has_other_targets,
    ),
    Entry(
        ("peft_lora_target_modules",),
        ("adapter.targets",),
        _write_targets,
        _read_targets,
        "helpers/models/common.py _get_peft_lora_target_modules",
        since="3.3.1",
        when=has_adapter,
    ),
    fixed("adapter.bias", "none", ADAPTERS),
    fixed("adapter.rslora", value=False, source=ADAPTERS),
    fixed("adapter.parameters", (), ADAPTERS),
    fixed("adapter.also_train", (), f"{ADAPTERS}, get_lora_save_layers"),
    fixed(
        "adapter.frozen", (), "helpers/models/common.py freeze_components: the denoiser is whole"
    ),
    Entry(
        ("resolution", "resolution_type"),
        ("data.image_width", "data.image_height"),
        _write_resolution,
        _read_resolution,
        "helpers/data_backend/factory.py _handle_resolution_conversion: pixel_area keeps the area "
        "of a square of that side",
        absent=((ALWAYS, {"data.image_width": 1024, "data.image_height": 1024}),),
    ),
)


WEIGHT_DTYPE: Final = "simpletuner 3.1.6 and 4.10.1, helpers/configuration/cmd_args.py weight_dtype"
TRAINER: Final = "simpletuner 3.1.6 and 4.10.1, helpers/training/trainer.py"

DTYPE_FLAGS: Final = ("mixed_precision", "base_model_precision", "base_model_default_dtype")

MIXED_PRECISION: Final[Mapping[FloatDtype, str]] = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}
_FORMATS: Final[Mapping[QuantFormat, str]] = {
    "none": "no_change",
    "nf4": "nf4-bnb",
    "int8": "int8-quanto",
}
"""Eight bits use quanto: SimpleTuner has no int8 of bitsandbytes."""


def weight_dtype(found: Mapping[str, Json]) -> FloatDtype | None:
    """The dtype that follows from the three flags; None for fp8."""
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


def trained_flags(plan: Plan) -> Mapping[str, Json]:
    """The flags that decide in which dtype parameters are trained, without DeepSpeed."""
    return {**dtype_flags(plan), **fsdp.flag(plan)}


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
    if held is None:
        return {}
    trained = dict.fromkeys(_TRAINED_IN, "fp32" if fsdp.shards(found) else held)
    return {"states.weights": held, **trained}


_STORED: Final = ("quantization.format", "quantization.double", "quantization.compute")
_TRAINED_IN: Final = ("states.trainable", "states.gradients")
_HELD_IN: Final = ("states.weights", *_TRAINED_IN)
"""Slots that `weight_dtype` determines, unless DeepSpeed casts and copies, or FSDP widens what is
trained (accelerate 1.15.0 utils/fsdp_utils.py `fsdp2_prepare_model`)."""


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
        (*DTYPE_FLAGS, "deepspeed_config", fsdp.ENABLED),
        _HELD_IN,
        trained_flags,
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
