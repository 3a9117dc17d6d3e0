"""Rows of LLaMA-Factory's own arguments: model, data, fine-tuning, precision."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.target import ALWAYS, Json, Phrase, fixed, same
from tunec.targets.read_only import in_four_bits, named_word, observed, split_names, with_adapters

_MODEL: Final = "llamafactory 0.9.1 to 0.9.5 hparams/model_args.py `ModelArguments`"
_DATA: Final = "llamafactory 0.9.1 to 0.9.5 hparams/data_args.py `DataArguments`"
_TUNING: Final = "llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py `FinetuningArguments`"
_LORA: Final = "llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py `LoraArguments`"
_PARSER: Final = "llamafactory 0.9.1 to 0.9.5 hparams/parser.py `get_train_args`"
_BNB: Final = (
    "llamafactory 0.9.1 to 0.9.5 model/model_utils/quantization.py `configure_quantization`"
)
_RECOMPUTES: Final = "llamafactory 0.9.1 to 0.9.5 model/model_utils/checkpointing.py"


# ── objective and loss ───────────────────────────────────────────────────────────────────────────

_STAGES: Final = {"sft": "sft", "dpo": "dpo"}
_PAIR_LOSSES: Final = ("sigmoid", "hinge", "ipo")


def _objective(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Supervised, or DPO with a loss that has a reference; other stages are no slot's value."""
    stage = _STAGES.get(str(found.get("stage", "sft")))
    loss = found.get("pref_loss", "sigmoid")
    if stage == "sft":
        return {"objective.kind": "sft", "objective.loss": "nll", "objective.beta": 0.0}
    if stage is None or loss not in _PAIR_LOSSES:
        return {}
    beta = {"objective.beta": found.get("pref_beta", 0.1)}
    return {"objective.kind": stage, "objective.loss": loss, **beta}


def _path(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Liger's fused loss where the stage needs no logits."""
    on = found.get("enable_liger_kernel") is True
    supervised = found.get("stage", "sft") in ("pt", "sft")
    return {"loss.path": "fused" if on and supervised else "full"}


OBJECTIVE: Final = (
    observed(
        ("stage", "pref_loss", "pref_beta"),
        ("objective.kind", "objective.loss", "objective.beta"),
        _objective,
        _TUNING,
        absent=_objective({}),
    ),
    observed(
        ("enable_liger_kernel", "stage"),
        ("loss.path",),
        _path,
        f"{_MODEL}; model/model_utils/liger_kernel.py `apply_liger_kernel`: require_logits",
        absent={"loss.path": "full"},
    ),
)


# ── model and data ───────────────────────────────────────────────────────────────────────────────

_ATTENTION: Final = {"fa2": "flash_attention_2", "sdpa": "sdpa", "disabled": "eager"}


def _data(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Data sets by name with commas between them, joined unless they are to be mixed by share."""
    names = split_names(found.get("dataset"))
    if not names or found.get("mix_strategy", "concat") != "concat":
        return {}
    return {"data.train": names[0], "data.more": names[1:]}


def _evaluation(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """One name; a share that is split off is no slot's value."""
    names = split_names(found.get("eval_dataset"))
    if names:
        return {"data.evaluation": names[0]} if len(names) == 1 else {}
    return {} if found.get("val_size") else {"data.evaluation": None}


def forms(found: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Names of data sets, which a file beside them explains."""
    for key in ("dataset", "eval_dataset"):
        names = split_names(found.get(key))
        if names:
            why = f"llamafactory finds {joined(names, 'and')} in its dataset_info.json"
            yield key, f"{why}: trl takes a file or a data set by the name that it has for all"


def _packing(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get("neat_packing"):
        return {"data.packing": True}
    said = found.get("packing")
    return {"data.packing": found.get("stage") == "pt" if said is None else said}


MODEL: Final = (
    same("model_name_or_path", "model.path", _MODEL),
    same(
        "trust_remote_code",
        "model.trust_remote_code",
        f"{_MODEL}, in 0.9.3 and not in 0.9.1",
        since="0.9.2",
        absent=((ALWAYS, False),),
    ),
    fixed(
        "model.trust_remote_code",
        True,
        "llamafactory 0.9.1 model/loader.py `_get_init_kwargs`",
        until="0.9.2",
    ),
    observed(
        ("flash_attn",),
        ("attention.implementation",),
        named_word(_ATTENTION, "flash_attn", "attention.implementation"),
        "llamafactory 0.9.1 to 0.9.5 model/model_utils/attention.py; auto is the model's own",
    ),
    observed(
        ("dataset", "mix_strategy"),
        ("data.train", "data.more"),
        _data,
        f"{_DATA}; data/data_utils.py `merge_dataset`",
    ),
    observed(
        ("eval_dataset", "val_size"),
        ("data.evaluation",),
        _evaluation,
        _DATA,
        absent={"data.evaluation": None},
    ),
    same("cutoff_len", "data.sequence", _DATA, absent=((ALWAYS, 2048),)),
    observed(
        ("packing", "neat_packing", "stage"),
        ("data.packing",),
        _packing,
        f"{_DATA}; {_PARSER}: absent it is on in pre-training only",
        absent={"data.packing": False},
    ),
)


# ── what is trained ──────────────────────────────────────────────────────────────────────────────


def _alpha(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {"adapter.alpha": found.get("lora_alpha") or 2 * found.get("lora_rank", 8)}


def _targets(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """`all` means every linear layer, which the model's tree says."""
    names = split_names(found["lora_target"])
    return {"adapter.targets": names} if names != ("all",) else {}


ADAPTER: Final = (
    observed(
        ("finetuning_type",),
        ("adapter.kind",),
        named_word({"lora": "lora", "full": "none"}, "finetuning_type", "adapter.kind"),
        f"{_TUNING}; freeze and oft are no slot's value",
        absent={"adapter.kind": "lora"},
    ),
    same("lora_rank", "adapter.rank", _LORA, absent=((ALWAYS, 8),), when=with_adapters),
    observed(
        ("lora_alpha", "lora_rank"),
        ("adapter.alpha",),
        _alpha,
        f"{_TUNING} `__post_init__`: twice the rank",
        absent={"adapter.alpha": 16.0},
        when=with_adapters,
    ),
    same("lora_dropout", "adapter.dropout", _LORA, absent=((ALWAYS, 0.0),)),
    observed(("lora_target",), ("adapter.targets",), _targets, f"{_LORA}; absent it is all"),
    observed(
        ("additional_target",),
        ("adapter.also_train",),
        lambda found: {"adapter.also_train": split_names(found["additional_target"])},
        _LORA,
        absent={"adapter.also_train": ()},
    ),
    same("use_rslora", "adapter.rslora", _LORA, absent=((ALWAYS, False),)),
    same("use_dora", "adapter.dora", _LORA, absent=((ALWAYS, False),)),
    fixed(
        "adapter.bias", "none", "llamafactory 0.9.1 to 0.9.5 model/adapter.py `_setup_lora_tuning`"
    ),
)


def _every_layer(found: Mapping[str, Json]) -> Mapping[str, Any]:
    is_all = split_names(found["lora_target"]) == ("all",)
    return {"adapter.targets": "all-linear"} if is_all else {}


EVERY_LAYER: Final = Phrase(
    ("lora_target",),
    _every_layer,
    "llamafactory 0.9.1 to 0.9.5 model/model_utils/misc.py `find_all_linear_modules`",
)


def _format(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Bits by bitsandbytes; other methods are no slot's value."""
    bits = found.get("quantization_bit")
    if bits is None:
        return {"quantization.format": "none"}
    if found.get("quantization_method", "bnb") not in ("bnb", "bitsandbytes"):
        return {}
    four = found.get("quantization_type", "nf4")
    form = {4: four, 8: "int8"}.get(bits)
    return {} if form is None else {"quantization.format": form}


QUANTIZATION: Final = (
    observed(
        ("quantization_bit", "quantization_method", "quantization_type"),
        ("quantization.format",),
        _format,
        f"{_MODEL}; {_BNB}",
        absent={"quantization.format": "none"},
    ),
    same(
        "double_quantization",
        "quantization.double",
        _MODEL,
        absent=((ALWAYS, True),),
        when=in_four_bits,
    ),
)


# ── arithmetic ───────────────────────────────────────────────────────────────────────────────────


def _precision(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """`pure_bf16` loads and trains in bfloat16, without autocast."""
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


PRECISION: Final = (
    observed(
        ("bf16", "fp16", "pure_bf16", "deepspeed", "finetuning_type"),
        (
            *("precision.compute", "precision.loss_scaling", "states.autocast"),
            *("quantization.compute", "quantization.storage", "states.weights"),
        ),
        _precision,
        f"{_PARSER}: `model_args.compute_dtype`; {_BNB}: bnb_4bit_quant_storage; model/adapter.py "
        "`init_adapter`: cast_trainable_params_to_fp32",
        absent={"precision.loss_scaling": "none", "states.autocast": False},
    ),
)


def _checkpointing(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The Trainer's own flag turns it on again."""
    off = found.get("disable_gradient_checkpointing") and not found.get("gradient_checkpointing")
    return {"activation_checkpointing.mode": "none" if off else "layer"}


CHECKPOINTING: Final = (
    observed(
        ("disable_gradient_checkpointing", "gradient_checkpointing"),
        ("activation_checkpointing.mode",),
        _checkpointing,
        f"{_MODEL}; {_RECOMPUTES} `prepare_model_for_training`: on unless it is turned off",
        absent={"activation_checkpointing.mode": "layer"},
    ),
    same(
        "use_unsloth_gc",
        "activation_checkpointing.offload",
        f"{_MODEL}; model/model_utils/checkpointing.py "
        "`get_unsloth_gradient_checkpointing_func`: hidden_states.to('cpu')",
        absent=((ALWAYS, False),),
    ),
    same(
        "use_reentrant_gc",
        "activation_checkpointing.reentrant",
        f"{_MODEL}, in 0.9.3 and not in 0.9.1",
        since="0.9.2",
        absent=((ALWAYS, True),),
    ),
    fixed(
        "activation_checkpointing.reentrant",
        True,
        "llamafactory 0.9.1 model/model_utils/checkpointing.py `prepare_model_for_training`",
        until="0.9.2",
    ),
)
