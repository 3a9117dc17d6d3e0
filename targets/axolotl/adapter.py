"""Rows of Axolotl's YAML for the adapter and for the storage of the frozen base."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json, Phrase, constant, fixed, same
from tunec.schemas.frozen import replace
from tunec.targets.axolotl.packages import WRITTEN
from tunec.targets.huggingface.adapter import whole
from tunec.targets.huggingface.model import DTYPES, dtype_of
from tunec.targets.read_only import split_names
from tunec.targets.rows import (
    adapted_parameters,
    dropout,
    has_adapter,
    in_four_bits,
    row,
    saved_modules,
)

_PEFT: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/peft.py `LoraConfig`"
_LOADER: Final = "axolotl loaders/model.py `_set_quantization_config`, before 0.10 utils/models.py"
_BUILD: Final = "axolotl 0.8.1 to 0.19.0 loaders/adapter.py `load_lora`"


# ── adapter ──────────────────────────────────────────────────────────────────────────────────────


def write_kind(plan: Plan) -> Mapping[str, Json]:
    """The adapter's kind.

    With a 4-bit base it is qlora, because Axolotl does not quantize for lora.
    """
    if not has_adapter(plan):
        return {}
    return {"adapter": "qlora" if in_four_bits(plan) else "lora"}


def _kind(found: Mapping[str, Json]) -> Mapping[str, Any]:
    word = found["adapter"] or "none"
    kinds = {"lora": "lora", "qlora": "lora", "none": "none"}
    return {"adapter.kind": kinds[word]} if word in kinds else {}


def _write_targets(plan: Plan) -> Mapping[str, Json]:
    targets = plan.adapter.targets
    return {"lora_target_modules": targets if isinstance(targets, str) else list(targets)}


def _targets(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The named layers, unless `lora_target_linear` adds every linear layer of the model."""
    if found.get("lora_target_linear") or not found.get("lora_target_modules"):
        return {}
    targets = found["lora_target_modules"]
    return {"adapter.targets": targets if isinstance(targets, str) else split_names(targets)}


REWARDS_TEXTS: Final = "reward_model"
"""The switch for training a reward model."""


_KERNELS: Final = (
    "axolotl 0.13.2 to 0.19.0 utils/schemas/config.py `check_auto_enable_lora_kernels`: absent, on "
    "for some; the account of memory has none of them"
)
_WITHOUT_KERNELS: Final = (
    *(
        constant(f"lora_{name}_kernel", False, _KERNELS, since=WRITTEN, when=has_adapter)
        for name in ("mlp", "qkv", "o")
    ),
    constant("lora_embedding_kernel", False, _KERNELS, since="0.16", when=has_adapter),
)
ADAPTER: Final = (
    row(("adapter",), ("adapter.kind",), write_kind, _kind, _PEFT, absent={"adapter.kind": "none"}),
    same("lora_r", "adapter.rank", _PEFT, when=has_adapter),
    row(
        ("lora_alpha",),
        ("adapter.alpha",),
        lambda plan: {"lora_alpha": whole(plan.adapter.alpha)},
        lambda found: {"adapter.alpha": found["lora_alpha"]},
        _PEFT,
        when=has_adapter,
    ),
    dropout(
        "lora_dropout",
        0.0,
        {"dpo": ("rl", "dpo"), "reward": (REWARDS_TEXTS, True)},
        f"{_PEFT}; core/trainers/dpo/args.py `AxolotlDPOConfig`, core/training_args.py "
        "`AxolotlRewardConfig`: TRL's disable_dropout",
    ),
    row(
        ("lora_target_modules", "lora_target_linear"),
        ("adapter.targets",),
        _write_targets,
        _targets,
        _BUILD,
        when=has_adapter,
    ),
    adapted_parameters(
        "lora_target_parameters",
        "axolotl 0.12.0 to 0.19.0 loaders/adapter.py `load_lora`",
        since=WRITTEN,
    ),
    saved_modules(
        "lora_modules_to_save",
        {REWARDS_TEXTS: True},
        lambda found: bool(found.get(REWARDS_TEXTS)),
        f"{_PEFT}; loaders/adapter.py `_get_peft_task_type`",
    ),
    same("peft_use_rslora", "adapter.rslora", _PEFT, default=False, when=has_adapter),
    same("peft_use_dora", "adapter.dora", _PEFT, default=False, when=has_adapter),
    replace(fixed("adapter.bias", "none", _BUILD), when=has_adapter),
    *_WITHOUT_KERNELS,
)


def _every_layer(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """All linear layers; names beside the switch add nothing, except for the output layer."""
    more = found.get("lora_target_modules") or ()
    is_all = found.get("lora_target_linear") and not isinstance(more, str) and _HEAD not in more
    return {"adapter.targets": "all-linear"} if is_all else {}


_HEAD: Final = "lm_head"
EVERY_LAYER: Final = Phrase(
    ("lora_target_linear", "lora_target_modules"),
    _every_layer,
    "axolotl 0.8.1 to 0.19.0 loaders/adapter.py `find_all_linear_names`",
)


# ── quantisation ─────────────────────────────────────────────────────────────────────────────────

_KWARGS: Final = "bnb_config_kwargs"
_TYPE: Final = f"{_KWARGS}.bnb_4bit_quant_type"
_STORAGE: Final = f"{_KWARGS}.bnb_4bit_quant_storage"


def _write_format(plan: Plan) -> Mapping[str, Json]:
    form = plan.quantization.format
    kind = {_TYPE: form} if in_four_bits(plan) else {}
    return {"load_in_4bit": in_four_bits(plan), "load_in_8bit": form == "int8", **kind}


def _format(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get("load_in_4bit"):
        return {"quantization.format": found.get(_TYPE, "nf4")}
    return {"quantization.format": "int8" if found.get("load_in_8bit") else "none"}


def _write_storage(plan: Plan) -> Mapping[str, Json]:
    dtype = plan.quantization.storage
    return {_STORAGE: "uint8" if dtype is None else DTYPES[dtype]}


def _storage(found: Mapping[str, Json]) -> Mapping[str, Any]:
    dtype = dtype_of(found[_STORAGE])
    is_known = dtype is not None or str(found[_STORAGE]) in ("uint8", "torch.uint8")
    return {"quantization.storage": dtype} if is_known else {}


QUANTIZATION: Final = (
    row(
        ("load_in_4bit", "load_in_8bit", _TYPE),
        ("quantization.format",),
        _write_format,
        _format,
        f"{_PEFT}; {_LOADER}",
        absent={"quantization.format": "none"},
    ),
    same(
        f"{_KWARGS}.bnb_4bit_use_double_quant",
        "quantization.double",
        _LOADER,
        default=True,
        when=in_four_bits,
    ),
    row(
        (_STORAGE,),
        ("quantization.storage",),
        _write_storage,
        _storage,
        f"{_LOADER}: bfloat16 for all but a few families, and not uint8 as bitsandbytes has it",
        absent={"quantization.storage": "bf16"},
        when=in_four_bits,
    ),
)
