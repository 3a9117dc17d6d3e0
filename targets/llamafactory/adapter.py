"""Rows of LLaMA-Factory's own arguments: what is trained, and how the frozen base is stored."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json, Phrase, constant, derived, fixed, same
from tunec.schemas.frozen import replace
from tunec.targets.huggingface.adapter import whole
from tunec.targets.huggingface.text_layers import names_in_the_text
from tunec.targets.llamafactory.packages import WRITTEN
from tunec.targets.read_only import named_word, split_names
from tunec.targets.rows import dropout, has_adapter, in_four_bits, row

_MODEL: Final = "llamafactory 0.9.1 to 0.9.5 hparams/model_args.py `ModelArguments`"
_TUNING: Final = "llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py `FinetuningArguments`"
_LORA: Final = "llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py `LoraArguments`"
_BNB: Final = (
    "llamafactory 0.9.1 to 0.9.5 model/model_utils/quantization.py `configure_quantization`"
)
_PARTS: Final = "llamafactory 0.9.1 to 0.9.5 model/model_utils/visual.py"


# ── what is trained ──────────────────────────────────────────────────────────────────────────────


def _alpha(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {"adapter.alpha": found.get("lora_alpha") or 2 * found.get("lora_rank", 8)}


def _write_targets(plan: Plan) -> Mapping[str, Json]:
    targets = plan.adapter.targets
    if targets == "all-linear":
        return {"lora_target": "all"}
    return {} if isinstance(targets, str) else {"lora_target": ",".join(targets)}


def _write_also_trained(plan: Plan) -> Mapping[str, Json]:
    names = plan.adapter.also_train
    return {"additional_target": ",".join(names)} if names else {}


def _targets(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Read `all` as every linear layer, which follows from the model's architecture."""
    names = split_names(found["lora_target"])
    return {"adapter.targets": names} if names != ("all",) else {}


def _is_of_the_text(plan: Plan) -> bool:
    return has_adapter(plan) and bool(names_in_the_text(plan))


def _is_by_name(plan: Plan) -> bool:
    return has_adapter(plan) and not _is_of_the_text(plan)


def _sees_by_name(plan: Plan) -> bool:
    return _is_by_name(plan) and plan.model.kind == "vision-language"


_PARTS_KEYS: Final = (
    ("vision", "freeze_vision_tower"),
    ("projector", "freeze_multi_modal_projector"),
    ("text", "freeze_language_model"),
)


def _write_frozen(plan: Plan) -> Mapping[str, Json]:
    frozen = {key: part in plan.adapter.frozen for part, key in _PARTS_KEYS}
    return {**frozen, "finetuning_type": "full"}


def _frozen(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The frozen parts in full training, if a key sets one; by default only text trains."""
    if found.get("finetuning_type") != "full" or not {key for _, key in _PARTS_KEYS} & {*found}:
        return {}
    held = (part for part, key in _PARTS_KEYS if found.get(key, key != "freeze_language_model"))
    return {"adapter.frozen": tuple(held)}


def _sees_in_full(plan: Plan) -> bool:
    return not has_adapter(plan) and plan.model.kind == "vision-language"


ADAPTER: Final = (
    row(
        ("finetuning_type",),
        ("adapter.kind",),
        lambda plan: {"finetuning_type": "lora" if has_adapter(plan) else "full"},
        named_word({"lora": "lora", "full": "none"}, "finetuning_type", "adapter.kind"),
        f"{_TUNING}; freeze and oft are no slot's value",
        absent={"adapter.kind": "lora"},
    ),
    same("lora_rank", "adapter.rank", _LORA, default=8, when=has_adapter),
    row(
        ("lora_alpha", "lora_rank"),
        ("adapter.alpha",),
        lambda plan: {"lora_alpha": whole(plan.adapter.alpha)},
        _alpha,
        f"{_TUNING} `__post_init__`: twice the rank",
        absent={"adapter.alpha": 16.0},
        when=has_adapter,
    ),
    dropout(
        "lora_dropout",
        0.0,
        {"dpo": ("stage", "dpo")},
        f"{_LORA}; train/dpo/trainer.py `CustomDPOTrainer.__init__`: disable_dropout",
    ),
    row(
        ("lora_target",),
        ("adapter.targets",),
        _write_targets,
        _targets,
        f"{_LORA}; absent it is all",
        when=_is_by_name,
    ),
    derived(
        "lora_target",
        lambda plan: ",".join(names_in_the_text(plan)),
        f"{_PARTS} `patch_target_modules`: of a model that sees those outside of frozen parts",
        when=_is_of_the_text,
    ),
    constant("freeze_vision_tower", True, _PARTS, since=WRITTEN, when=_is_of_the_text),
    constant("freeze_multi_modal_projector", True, _PARTS, since=WRITTEN, when=_is_of_the_text),
    constant("freeze_vision_tower", False, _PARTS, since=WRITTEN, when=_sees_by_name),
    constant("freeze_multi_modal_projector", False, _PARTS, since=WRITTEN, when=_sees_by_name),
    row(
        (*(key for _, key in _PARTS_KEYS), "finetuning_type"),
        ("adapter.frozen",),
        _write_frozen,
        _frozen,
        f"{_PARTS} `get_forbidden_modules`",
        since=WRITTEN,
        when=_sees_in_full,
    ),
    row(
        ("additional_target",),
        ("adapter.also_train",),
        _write_also_trained,
        lambda found: {"adapter.also_train": split_names(found["additional_target"])},
        _LORA,
        absent={"adapter.also_train": ()},
        when=has_adapter,
    ),
    replace(fixed("adapter.parameters", (), f"{_LORA}: no key names parameters"), when=has_adapter),
    same("use_rslora", "adapter.rslora", _LORA, default=False, when=has_adapter),
    same("use_dora", "adapter.dora", _LORA, default=False, when=has_adapter),
    replace(
        fixed(
            "adapter.bias",
            "none",
            "llamafactory 0.9.1 to 0.9.5 model/adapter.py `_setup_lora_tuning`",
        ),
        when=has_adapter,
    ),
)


def _every_layer(found: Mapping[str, Json]) -> Mapping[str, Any]:
    is_all = split_names(found.get("lora_target", "all")) == ("all",)
    is_lora = found.get("finetuning_type", "lora") == "lora"
    return {"adapter.targets": "all-linear"} if is_all and is_lora else {}


EVERY_LAYER: Final = Phrase(
    ("lora_target",),
    _every_layer,
    "llamafactory 0.9.1 to 0.9.5 model/model_utils/misc.py `find_all_linear_modules`; "
    "hparams/finetuning_args.py `LoraArguments.lora_target`, `finetuning_type`",
    beside=("finetuning_type",),
    by_default=True,
)


# ── quantisation ─────────────────────────────────────────────────────────────────────────────────

_BITS: Final = {"nf4": 4, "fp4": 4, "int8": 8}


def _write_format(plan: Plan) -> Mapping[str, Json]:
    form = plan.quantization.format
    kind = {"quantization_type": form} if in_four_bits(plan) else {}
    return {} if form == "none" else {"quantization_bit": _BITS[form], **kind}


def _format(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The format of bitsandbytes; other methods have no slot value."""
    bits = found.get("quantization_bit")
    if bits is None:
        return {"quantization.format": "none"}
    if found.get("quantization_method", "bnb") not in ("bnb", "bitsandbytes"):
        return {}
    four = found.get("quantization_type", "nf4")
    form = {4: four, 8: "int8"}.get(bits)
    return {} if form is None else {"quantization.format": form}


QUANTIZATION: Final = (
    row(
        ("quantization_bit", "quantization_method", "quantization_type"),
        ("quantization.format",),
        _write_format,
        _format,
        f"{_MODEL}; {_BNB}",
        absent={"quantization.format": "none"},
    ),
    same("double_quantization", "quantization.double", _MODEL, default=True, when=in_four_bits),
)
