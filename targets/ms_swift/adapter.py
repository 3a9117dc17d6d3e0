"""Rows of ms-swift's own arguments: what is trained, and how the frozen base is stored."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json, Phrase, named, same
from tunec.targets.huggingface.adapter import whole
from tunec.targets.huggingface.model import BY_DTYPE, DTYPES
from tunec.targets.ms_swift.packages import METHODS
from tunec.targets.read_only import named_word, split_names
from tunec.targets.rows import (
    adapted_parameters,
    dropout,
    has_adapter,
    in_four_bits,
    row,
    saved_modules,
)

_TUNER: Final = "ms-swift 4.0.4 to 4.6.0 arguments/tuner_args.py `TunerArguments`"
_KIND: Final = "ms-swift 4.0.4 to 4.6.0 arguments/base_args/base_args.py `BaseArguments`"
_TRAINED: Final = "ms-swift 4.0.4 to 4.6.0 pipelines/train/tuner.py"
_QUANT: Final = "ms-swift 4.0.4 to 4.6.0 arguments/base_args/quant_args.py `QuantizeArguments`"


_ALL: Final = "all-linear"


# ── what is trained ──────────────────────────────────────────────────────────────────────────────


def _write_targets(plan: Plan) -> Mapping[str, Json]:
    targets = plan.adapter.targets
    if isinstance(targets, str) and targets != _ALL:
        return {"target_regex": targets}
    return {"target_modules": [targets] if isinstance(targets, str) else [*targets]}


def _targets(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The targets: a pattern overrides names; `all-linear` depends on the frozen parts."""
    if found.get("target_regex"):
        return {"adapter.targets": found["target_regex"]}
    names = split_names(found.get("target_modules"))
    is_plain = names and not any(each.startswith("all-") for each in names)
    return {"adapter.targets": names} if is_plain else {}


_PARTS: Final = (("vision", "freeze_vit"), ("projector", "freeze_aligner"), ("text", "freeze_llm"))
_PART_KEYS: Final = tuple(key for _, key in _PARTS)


def _write_frozen(plan: Plan) -> Mapping[str, Json]:
    frozen = {key: part in plan.adapter.frozen for part, key in _PARTS}
    return {**frozen, "tuner_type": "full"}


def _frozen(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The frozen parts in full training, if a key sets one; by default tower and aligner are."""
    if found.get("tuner_type") != "full" or not {*_PART_KEYS} & {*found}:
        return {}
    held = (part for part, key in _PARTS if found.get(key, key != "freeze_llm"))
    return {"adapter.frozen": tuple(held)}


def _sees_in_full(plan: Plan) -> bool:
    return not has_adapter(plan) and plan.model.kind == "vision-language"


def _of_adapter(key: str, slot: str, default: Any) -> Entry:
    return same(key, f"adapter.{slot}", _TUNER, default=default, when=has_adapter)


_REWARD: Final = METHODS["reward"]
ADAPTER: Final = (
    row(
        ("tuner_type",),
        ("adapter.kind",),
        lambda plan: {"tuner_type": "lora" if has_adapter(plan) else "full"},
        named_word({"lora": "lora", "full": "none"}, "tuner_type", "adapter.kind"),
        f"{_KIND}; adalora, longlora and others are no slot's value",
        absent={"adapter.kind": "lora"},
    ),
    _of_adapter("lora_rank", "rank", 8),
    row(
        ("lora_alpha",),
        ("adapter.alpha",),
        lambda plan: {"lora_alpha": whole(plan.adapter.alpha)},
        lambda found: {"adapter.alpha": found["lora_alpha"]},
        _TUNER,
        absent={"adapter.alpha": 32.0},
        when=has_adapter,
    ),
    dropout(
        "lora_dropout",
        0.05,
        {"dpo": ("rlhf_type", "dpo"), "reward": ("rlhf_type", _REWARD)},
        f"{_TUNER}; rlhf_trainers/arguments.py `DPOConfig`, `RewardConfig`: TRL's disable_dropout",
    ),
    row(
        ("target_modules", "target_regex"),
        ("adapter.targets",),
        _write_targets,
        _targets,
        f"{_TUNER} `__post_init__`; {_TRAINED} `get_target_modules`; absent they are all-linear",
        when=has_adapter,
    ),
    named(
        "lora_bias",
        "adapter.bias",
        {"none": "none", "all": "all"},
        _TUNER,
        default="none",
        when=has_adapter,
    ),
    adapted_parameters("target_parameters", _TUNER),
    saved_modules(
        "modules_to_save",
        {"rlhf_type": _REWARD},
        lambda found: found.get("rlhf_type") == _REWARD,
        f"{_TUNER}; pipelines/train/tuner.py `prepare_adapter`: task_type",
    ),
    _of_adapter("use_rslora", "rslora", default=False),
    _of_adapter("use_dora", "dora", default=False),
    row(
        (*_PART_KEYS, "tuner_type"),
        ("adapter.frozen",),
        _write_frozen,
        _frozen,
        f"{_TUNER} `_init_multimodal_full`",
        when=_sees_in_full,
    ),
)


def _every_layer(found: Mapping[str, Json]) -> Mapping[str, Any]:
    is_all = split_names(found.get("target_modules", _ALL)) == (_ALL,)
    is_lora = found.get("tuner_type", "lora") == "lora" and not found.get("target_regex")
    return {"adapter.targets": _ALL} if is_all and is_lora else {}


EVERY_LAYER: Final = Phrase(
    ("target_modules",),
    _every_layer,
    f"{_TUNER} `target_modules`, `tuner_type`; {_TRAINED} `get_target_modules`",
    beside=("tuner_type", "target_regex"),
    by_default=True,
)


# ── quantisation ─────────────────────────────────────────────────────────────────────────────────

_BITS: Final = {"nf4": 4, "fp4": 4, "int8": 8}


def _write_format(plan: Plan) -> Mapping[str, Json]:
    form = plan.quantization.format
    kind = {"bnb_4bit_quant_type": form} if in_four_bits(plan) else {}
    bits = {"quant_method": "bnb", "quant_bits": _BITS.get(form)}
    return {} if form == "none" else {**bits, **kind}


def _format(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The format of bitsandbytes; other methods have no slot value."""
    if found.get("quant_method") is None:
        return {"quantization.format": "none"}
    if found["quant_method"] != "bnb":
        return {}
    four = found.get("bnb_4bit_quant_type", "nf4")
    form = {"4": four, "8": "int8"}.get(str(found.get("quant_bits")))
    return {} if form is None else {"quantization.format": form}


def _in_dtype(key: str, slot: str, **more: Any) -> Entry:
    return row(
        (key,),
        (slot,),
        lambda plan: {key: DTYPES[plan[slot]]} if plan[slot] in DTYPES else {},
        named_word(BY_DTYPE, key, slot),
        _QUANT,
        when=in_four_bits,
        **more,
    )


QUANTIZATION: Final = (
    row(
        ("quant_method", "quant_bits", "bnb_4bit_quant_type"),
        ("quantization.format",),
        _write_format,
        _format,
        f"{_QUANT} `get_quantization_config`",
        absent={"quantization.format": "none"},
    ),
    same(
        "bnb_4bit_use_double_quant", "quantization.double", _QUANT, default=True, when=in_four_bits
    ),
    _in_dtype("bnb_4bit_compute_dtype", "quantization.compute"),
    _in_dtype(
        "bnb_4bit_quant_storage", "quantization.storage", absent={"quantization.storage": None}
    ),
)
