"""Rows of Axolotl's YAML: model, data, adapter, quantisation, precision, parallelism."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.wording import shown
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Json, Phrase, fixed, same
from tunec.targets.read_only import in_four_bits, observed, split_names

_MODEL: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/model.py `ModelInputConfig`"
_CONFIG: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/config.py `AxolotlInputConfig`"
_PEFT: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/peft.py `LoraConfig`"
_LOADER: Final = "axolotl loaders/model.py `_set_quantization_config`, before 0.10 utils/models.py"


# ── objective and loss ───────────────────────────────────────────────────────────────────────────


def _objective(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Supervised where no `rl` is named; KTO, ORPO and others are no slot's value."""
    word = found.get("rl")
    if word is None:
        return {"objective.kind": "sft", "objective.beta": 0.0}
    beta = found.get("rl_beta")
    said = {"objective.beta": beta} if isinstance(beta, float | int) else {}
    return {"objective.kind": word, **said} if word in ("dpo", "grpo") else {}


def _path(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Liger's fused loss; two other integrations make logits in pieces of their own."""
    if found.get("rl") is not None or any(found.get(key) for key in _OTHER_LOSSES):
        return {}
    return {"loss.path": "fused" if found.get(_LIGER_LOSS) is True else "full"}


def _is_supervised(plan: Plan) -> bool:
    return plan.objective.kind == "sft"


_LIGER_LOSS: Final = "liger_fused_linear_cross_entropy"
_OTHER_LOSSES: Final = ("cut_cross_entropy", "chunked_cross_entropy")

OBJECTIVE: Final = (
    observed(
        ("rl", "rl_beta"),
        ("objective.kind", "objective.beta"),
        _objective,
        f"{_CONFIG}; core/builders/rl.py",
        absent=_objective({}),
    ),
    observed(
        (_LIGER_LOSS, *_OTHER_LOSSES, "rl"),
        ("loss.path",),
        _path,
        "axolotl 0.8.1 to 0.19.0 integrations/liger/args.py `LigerArgs`",
        absent={"loss.path": "full"},
        when=_is_supervised,
    ),
)


# ── model and data ───────────────────────────────────────────────────────────────────────────────


def _data(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The data sets, which are joined; what they are mixed with by share is no slot's value."""
    parts = found["datasets"]
    if not isinstance(parts, list) or any(not isinstance(each, dict) for each in parts):
        return {}
    first, *more = [each["path"] for each in parts]
    return {"data.train": first, "data.more": tuple(more)}


def _evaluation(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """One data set of its own; a share that is split off is no slot's value."""
    parts = found.get("test_datasets")
    if parts:
        return {"data.evaluation": parts[0]["path"]} if len(parts) == 1 else {}
    return {} if found.get("val_set_size") else {"data.evaluation": None}


def forms(found: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """How prompts are made of the columns of data, which no other program does."""
    for key in ("datasets", "test_datasets"):
        for part in found.get(key) or ():
            rest = {name: each for name, each in part.items() if name != "path" and each}
            if rest not in ({}, {"split": "train"}):
                said = ", ".join(f"{name} {shown(each)}" for name, each in rest.items())
                why = (
                    f"axolotl reads {part.get('path')} by {said}: trl takes messages, prompts with "
                )
                yield key, f"{why}completions, or text"


def _attention(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The first flag that is on; others, such as xformers, are no slot's value."""
    word = found.get("attn_implementation")
    if word is None:
        word = next((_FLAGS[key] for key in _FLAGS if found.get(key)), None)
    return {} if word is None else {"attention.implementation": word}


_FLAGS: Final = {
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}

MODEL: Final = (
    same("base_model", "model.path", _MODEL),
    same("trust_remote_code", "model.trust_remote_code", _MODEL, absent=((ALWAYS, False),)),
    observed(
        ("datasets",),
        ("data.train", "data.more"),
        _data,
        f"{_CONFIG}; utils/schemas/datasets.py; utils/data/shared.py `merge_datasets`",
    ),
    observed(
        ("test_datasets", "val_set_size"),
        ("data.evaluation",),
        _evaluation,
        f"{_CONFIG}; utils/data/sft.py",
        absent={"data.evaluation": None},
    ),
    same("sequence_len", "data.sequence", _CONFIG, absent=((ALWAYS, 512),)),
    observed(
        ("sample_packing",),
        ("data.packing",),
        lambda found: {"data.packing": bool(found["sample_packing"])},
        _CONFIG,
        absent={"data.packing": False},
    ),
    observed(
        tuple(_FLAGS),
        ("attention.implementation",),
        _attention,
        f"{_CONFIG}; absent it is the model's own",
        until="0.13",
    ),
    observed(
        ("attn_implementation", *_FLAGS),
        ("attention.implementation",),
        _attention,
        f"{_CONFIG} `normalize_attn_implementation`: the flags are its older names",
        since="0.13",
    ),
)


# ── adapter and quantisation ─────────────────────────────────────────────────────────────────────


def _kind(found: Mapping[str, Json]) -> Mapping[str, Any]:
    word = found["adapter"] or "none"
    kinds = {"lora": "lora", "qlora": "lora", "none": "none"}
    return {"adapter.kind": kinds[word]} if word in kinds else {}


def _targets(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """With `lora_target_linear` every linear layer is meant, which the model's tree says."""
    if found.get("lora_target_linear") or not found.get("lora_target_modules"):
        return {}
    targets = found["lora_target_modules"]
    return {"adapter.targets": targets if isinstance(targets, str) else split_names(targets)}


ADAPTER: Final = (
    observed(("adapter",), ("adapter.kind",), _kind, _PEFT, absent={"adapter.kind": "none"}),
    same("lora_r", "adapter.rank", _PEFT),
    observed(
        ("lora_alpha",),
        ("adapter.alpha",),
        lambda found: {"adapter.alpha": found["lora_alpha"]},
        _PEFT,
    ),
    same("lora_dropout", "adapter.dropout", _PEFT, absent=((ALWAYS, 0.0),)),
    observed(
        ("lora_target_modules", "lora_target_linear"),
        ("adapter.targets",),
        _targets,
        f"{_PEFT}; loaders/adapter.py `load_lora`",
    ),
    observed(
        ("lora_modules_to_save",),
        ("adapter.also_train",),
        lambda found: {"adapter.also_train": split_names(found["lora_modules_to_save"])},
        _PEFT,
        absent={"adapter.also_train": ()},
    ),
    same("peft_use_rslora", "adapter.rslora", _PEFT, absent=((ALWAYS, False),)),
    same("peft_use_dora", "adapter.dora", _PEFT, absent=((ALWAYS, False),)),
    fixed("adapter.bias", "none", "axolotl 0.8.1 to 0.19.0 loaders/adapter.py `load_lora`"),
)


def _every_layer(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """With names beside them, which are among them but for the output layer."""
    more = found.get("lora_target_modules") or ()
    is_all = found.get("lora_target_linear") and not isinstance(more, str) and _HEAD not in more
    return {"adapter.targets": "all-linear"} if is_all else {}


_HEAD: Final = "lm_head"


EVERY_LAYER: Final = Phrase(
    ("lora_target_linear", "lora_target_modules"),
    _every_layer,
    "axolotl 0.8.1 to 0.19.0 loaders/adapter.py `find_all_linear_names`",
)

_KWARGS: Final = "bnb_config_kwargs"
_DTYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def _format(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get("load_in_4bit"):
        return {"quantization.format": found.get(f"{_KWARGS}.bnb_4bit_quant_type", "nf4")}
    return {"quantization.format": "int8" if found.get("load_in_8bit") else "none"}


def _storage(found: Mapping[str, Json]) -> Mapping[str, Any]:
    word = str(found[f"{_KWARGS}.bnb_4bit_quant_storage"]).removeprefix("torch.")
    return {"quantization.storage": _DTYPES.get(word)} if word in (*_DTYPES, "uint8") else {}


QUANTIZATION: Final = (
    observed(
        ("load_in_4bit", "load_in_8bit", f"{_KWARGS}.bnb_4bit_quant_type"),
        ("quantization.format",),
        _format,
        f"{_PEFT}; {_LOADER}",
        absent={"quantization.format": "none"},
    ),
    same(
        f"{_KWARGS}.bnb_4bit_use_double_quant",
        "quantization.double",
        _LOADER,
        absent=((ALWAYS, True),),
        when=in_four_bits,
    ),
    observed(
        (f"{_KWARGS}.bnb_4bit_quant_storage",),
        ("quantization.storage",),
        _storage,
        f"{_LOADER}: bfloat16 for all but a few families, and not uint8 as bitsandbytes has it",
        absent={"quantization.storage": "bf16"},
        when=in_four_bits,
    ),
)


# ── precision, checkpointing, parallelism ────────────────────────────────────────────────────────


def _precision(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """`bf16: auto`, the default, asks the device: then nothing is known unless fp16 is on."""
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


PRECISION: Final = (
    observed(
        ("bf16", "fp16", "bfloat16", "float16", "deepspeed"),
        (
            *("precision.compute", "precision.loss_scaling", "states.weights"),
            *("quantization.compute", "states.autocast"),
        ),
        _precision,
        "axolotl 0.8.1 to 0.19.0 utils/config/__init__.py `resolve_dtype`",
    ),
    observed(
        ("tf32",),
        ("precision.tf32",),
        lambda found: {"precision.tf32": found["tf32"]} if found["tf32"] != "auto" else {},
        f"{_CONFIG}: `auto` from 0.13",
    ),
)


def _checkpointing(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """`offload` and `unsloth` recompute too, and move what is kept to the host."""
    on = bool(found.get("gradient_checkpointing"))
    if not on and any(found.get(key) for key in _BY_FSDP):
        return {}
    return {"activation_checkpointing.mode": "layer" if on else "none"}


_BY_FSDP: Final = tuple(
    f"fsdp_config.{name}" for name in ("activation_checkpointing", "fsdp_activation_checkpointing")
)
"""Where FSDP recomputes, in the newer name and the older one: rows of its own say it."""


def _offloading(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """To the disk is no place of a slot."""
    words = (found.get("gradient_checkpointing"), found.get("activation_offloading"))
    if any(word in ("disk", "offload_disk") for word in words):
        return {}
    asked = words[0] in ("offload", "unsloth") or words[1] not in (None, False)
    return {"activation_checkpointing.offload": asked}


CHECKPOINTING: Final = (
    observed(
        ("gradient_checkpointing", *_BY_FSDP),
        ("activation_checkpointing.mode",),
        _checkpointing,
        _CONFIG,
        absent={"activation_checkpointing.mode": "none"},
    ),
    observed(
        ("gradient_checkpointing",),
        ("activation_checkpointing.offload",),
        _offloading,
        "axolotl 0.8.1 utils/models.py `ModelLoader`: CPU_Offloaded_Gradient_Checkpointer",
        until="0.13",
        absent={"activation_checkpointing.offload": False},
    ),
    observed(
        ("gradient_checkpointing", "activation_offloading"),
        ("activation_checkpointing.offload",),
        _offloading,
        "axolotl 0.13.2 to 0.19.0 utils/schemas/validation.py "
        "`check_gradient_checkpointing_w_offload`",
        since="0.13",
        absent={"activation_checkpointing.offload": False},
    ),
    same(
        "gradient_checkpointing_kwargs.use_reentrant",
        "activation_checkpointing.reentrant",
        "axolotl 0.13.2 to 0.19.0 core/builders/base.py `_configure_gradient_checkpointing`",
        since="0.13",
        absent=((ALWAYS, False),),
    ),
    same(
        "gradient_checkpointing_kwargs.use_reentrant",
        "activation_checkpointing.reentrant",
        "axolotl 0.8.1 core/trainer_builder.py; absent it is the library's own",
        until="0.13",
    ),
)
PARALLEL: Final = (
    observed(
        ("deepspeed",),
        ("parallel.engine",),
        lambda found: {"parallel.engine": "deepspeed"} if found["deepspeed"] else {},
        _CONFIG,
    ),
    same("tensor_parallel_size", "parallel.tensor", _CONFIG, since="0.13", absent=((ALWAYS, 1),)),
    same(
        "context_parallel_size",
        "parallel.sequence",
        f"{_CONFIG}; sequence_parallel_degree is its older name",
        since="0.13",
        absent=((ALWAYS, 1),),
    ),
    same(
        "sequence_parallel_degree",
        "parallel.sequence",
        _CONFIG,
        until="0.13",
        absent=((ALWAYS, 1),),
    ),
)
