"""What the parsers of trainers settle on, in the words of TRL's classes.

A setting that neither a file nor its parser has is absent. What a trainer does with its settings
after they are parsed is written here, with the place that does it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Values = Mapping[str, Any]
Meaning = dict[str, Any]
SAME = (
    *("learning_rate", "lr_scheduler_type", "num_train_epochs", "max_steps", "weight_decay"),
    *("gradient_accumulation_steps", "per_device_train_batch_size", "max_grad_norm", "seed"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "bf16", "fp16", "optim", "save_only_model"),
    *("save_total_limit", "save_steps", "save_strategy", "eval_strategy", "eval_steps"),
    *("output_dir", "trust_remote_code", "ddp_timeout", "logging_steps", "lr_scheduler_kwargs"),
    *("torch_compile", "neftune_noise_alpha", "dataset_num_proc", "dataloader_num_workers"),
    *("dataloader_drop_last", "model_revision", "torch_empty_cache_steps", "data_seed"),
    *("metric_for_best_model", "run_name", "per_device_eval_batch_size", "auto_find_batch_size"),
    *("ddp_bucket_cap_mb", "ddp_broadcast_buffers", "optim_target_modules"),
    *("average_tokens_across_devices", "eval_on_start", "label_smoothing_factor"),
)
"""Settings that the trainers call as the Trainer does."""
CLASSES = {"adamw_bnb_8bit": "adamw_8bit"}
"""transformers 4.40.2 to 5.23.0 trainer_optimizer.py: two words for one class."""
_EPOCHS = "num_train_epochs"
_OF_TRL = (
    *("model_name_or_path", "max_length", "packing", "beta", "label_smoothing", "loss_type"),
    *("gradient_checkpointing", "dtype", "test_split_size", "attn_implementation", "load_in_4bit"),
    *("load_in_8bit", "use_peft"),
)
_ADAPTER = ("r", "lora_alpha", "lora_dropout", "use_dora", "use_rslora", "bias", "modules_to_save")
_STORED = ("type", "storage", "compute", "double")


def of_trl(answer: Values) -> dict[str, Any]:
    """What `trl METHOD` has, from the classes that its parser fills and what it builds of them."""
    values: Values = answer["values"]
    found = {name: values[name] for name in (*SAME, *_OF_TRL) if name in values}
    kwargs = values["gradient_checkpointing_kwargs"] or {}
    every, engine = values["datasets"] or [], answer["deepspeed"]
    alone = {"path": values["dataset_name"], "name": values["dataset_config"]}
    alone["split"] = values["dataset_train_split"]
    return {
        **found,
        "optim": CLASSES.get(values["optim"], values["optim"]),
        "optim_args": _told(values["optim_args"]),
        "warmup": _rise(values["warmup_steps"], values, math.ceil),
        "use_reentrant": kwargs.get("use_reentrant"),
        "report_to": sorted(values["report_to"]),
        "liger": bool(values["use_liger_kernel"]),
        "datasets": [_set(each) for each in every or [alone]],
        **({"deepspeed": _engine(engine)} if engine else {}),
        **_sharded(answer.get("fsdp")),
        **{f"quantization.{key}": each for key, each in _packed(answer["quantization"])},
        **{f"adapter.{key}": each for key, each in _adapted(answer["adapter"])},
        **({"adapter.lora_dropout": None} if values.get("disable_dropout") else {}),
    }


def _rise(said: float, values: Values, rounded: Callable[[float], int]) -> float:
    """The warm-up in steps, if the number of all steps is known, otherwise as it is said.

    transformers 5.23.0 training_args.py `get_warmup_steps` rounds up.
    """
    most = values.get("max_steps") or -1
    return rounded(said * most) if 0 < said < 1 and most > 0 else said


def _same(values: Values) -> Meaning:
    """What a trainer calls as the Trainer does; steps go before epochs."""
    found = {name: values[name] for name in SAME if values.get(name) is not None}
    is_bound = (values.get("max_steps") or -1) > 0
    return {name: each for name, each in found.items() if name != _EPOCHS or not is_bound}


def _told(said: str | None) -> dict[str, str]:
    return dict(each.split("=", 1) for each in (said or "").split(",") if each)


def _set(said: Values) -> tuple[Any, ...]:
    """A data set: what `load_dataset` is given, without what stands for all of it."""
    split = said.get("split") or "train"
    return (said["path"], said.get("name"), said.get("data_files"), split)


def _engine(document: Values) -> dict[str, Any]:
    """The blocks of DeepSpeed's file that say how it shards; batches are compared by name."""
    zero = document.get("zero_optimization", {})
    kept = ("stage", "offload_optimizer", "offload_param", "overlap_comm")
    return {key: zero[key] for key in kept if zero.get(key) is not None}


def _sharded(said: Values | None) -> dict[str, Any]:
    """accelerate's FullyShardedDataParallelPlugin."""
    if said is None:
        return {}
    is_first = said["fsdp_version"] == 1
    return {
        "fsdp.version": said["fsdp_version"],
        "fsdp.offload": bool({**said["cpu_offload"]}.get("offload_params", said["cpu_offload"])),
        "fsdp.state_dict": said["state_dict_type"],
        "fsdp.loading": said["cpu_ram_efficient_loading"],
        "fsdp.recomputes": said["activation_checkpointing"],
        "fsdp.classes": said["transformer_cls_names_to_wrap"],
        **({"fsdp.original": said["use_orig_params"]} if is_first else {}),
        **({} if is_first else {"fsdp.reshard": said["reshard_after_forward"]}),
    }


def _packed(said: Values | None) -> Iterator[tuple[str, Any]]:
    """transformers' BitsAndBytesConfig."""
    if said and said["load_in_4bit"]:
        names = (f"bnb_4bit_{each}" for each in ("quant_type", "quant_storage", "compute_dtype"))
        values = (*(said[name] for name in names), said["bnb_4bit_use_double_quant"])
        yield from zip(_STORED, values, strict=True)


def _adapted(said: Values | None) -> Iterator[tuple[str, Any]]:
    """PEFT's LoraConfig."""
    if said:
        targets = said["target_modules"]
        yield "target_modules", targets if isinstance(targets, str) else sorted(targets or ())
        for name in _ADAPTER:
            held = said[name]
            yield name, sorted(held) if isinstance(held, list) else held or None


# ── LLaMA-Factory 0.9.5 ──────────────────────────────────────────────────────────────────────────

_ATTENTION = {"fa2": "flash_attention_2", "sdpa": "sdpa", "disabled": "eager"}
"""model/model_utils/attention.py `configure_attn_implementation`."""


def of_llamafactory(answer: Values) -> dict[str, Any]:
    """What LLaMA-Factory has once `get_train_args` has run, and what it does next with it."""
    values: Values = answer["values"]
    engine = _engine(answer["deepspeed"] or {})
    found = _same(values)
    is_lora, is_dpo = values["finetuning_type"] == "lora", values["stage"] == "dpo"
    found_sets: Values = answer["sets"]
    named = {name: found_sets.get(name, {}) for name in values["dataset"]}
    parts = [
        {"path": said.get("dataset_name", name), "split": _cut(values, said.get("split", "train"))}
        for name, said in named.items()
    ]
    by_name = all(each["load_from"] == "hf_hub" for each in found_sets.values())
    attention = _ATTENTION.get(values["flash_attn"])
    return {
        **found,
        "model_name_or_path": values["model_name_or_path"],
        "max_length": values["cutoff_len"] + bool(values["packing"]),  # data_args.py takes 1 off
        "packing": values["packing"],
        "optim": CLASSES.get(values["optim"], values["optim"]),
        "warmup": _rise(values["warmup_steps"] or values["warmup_ratio"], values, math.ceil),
        "gradient_checkpointing": not values["disable_gradient_checkpointing"],
        "use_reentrant": _reentrant(values),
        "report_to": sorted(values["report_to"]),
        "liger": values["enable_liger_kernel"],
        **({"datasets": [_set(each) for each in parts]} if by_name else {}),
        "test_split_size": values["val_size"] or None,
        "dataset_num_proc": values["preprocessing_num_workers"],
        **({"deepspeed": engine} if engine else {}),
        **_weights(values, is_kept=is_lora or engine.get("stage") == 3),
        "use_peft": is_lora,
        **({"attn_implementation": attention} if attention else {}),
        **_projected(values),
        **(_pairs(values) if is_dpo else {"loss_type": "dft" if values["use_dft_loss"] else "nll"}),
        **(_of_factorys_adapter(values) if is_lora else {}),
        **_of_factorys_base(values),
    }


_WORDS = {"galore": ("rank", "update_proj_gap", "scale", "proj_type")}
_WORDS["apollo"] = (*_WORDS["galore"], "proj", "scale_type")


def _projected(values: Values) -> dict[str, Any]:
    """train/trainer_utils.py `_create_galore_optimizer`, `_create_apollo_optimizer`."""
    name = next((each for each in _WORDS if values[f"use_{each}"]), None)
    if name is None:
        return {}
    layers = "_layerwise" if values[f"{name}_layerwise"] else ""
    gap = values[f"{name}_update_interval"]
    said = {"update_proj_gap": gap, **{key: values.get(f"{name}_{key}") for key in _WORDS[name]}}
    told = {key: str(gap if key == "update_proj_gap" else each) for key, each in said.items()}
    return {"optim": f"{name}_adamw{layers}", "optim_args": told}


def _cut(values: Values, split: str) -> str:
    most = values["max_samples"]
    return f"{split}[:{most}]" if most else split


def _reentrant(values: Values) -> Any:
    return None if values["disable_gradient_checkpointing"] else values["use_reentrant_gc"]


def _weights(values: Values, *, is_kept: bool) -> dict[str, Any]:
    """model/adapter.py `init_adapter`: what trains is cast to fp32, but for `pure_bf16`."""
    if values["compute_dtype"] is None:
        return {}  # the checkpoint's own, which no file says
    is_cast = not is_kept and not values["pure_bf16"]
    return {"dtype": "float32" if is_cast else values["compute_dtype"]}


def _pairs(values: Values) -> dict[str, Any]:
    """train/dpo/trainer.py `CustomDPOTrainer`."""
    smooth = values["dpo_label_smoothing"]
    loss = [values["pref_loss"], *(["sft"] if values["pref_ftx"] else [])]
    return {"beta": values["pref_beta"], "label_smoothing": smooth, "loss_type": loss}


def _of_factorys_adapter(values: Values) -> dict[str, Any]:
    """model/adapter.py `_setup_lora_tuning`; train/dpo/trainer.py: disable_dropout is on."""
    targets = values["lora_target"]
    return {
        "adapter.r": values["lora_rank"],
        "adapter.lora_alpha": values["lora_alpha"],
        "adapter.lora_dropout": (values["stage"] != "dpo" and values["lora_dropout"]) or None,
        "adapter.use_dora": values["use_dora"] or None,
        "adapter.use_rslora": values["use_rslora"] or None,
        "adapter.bias": "none",
        "adapter.modules_to_save": sorted(values["additional_target"] or ()) or None,
        "adapter.target_modules": "all-linear" if targets == ["all"] else sorted(targets),
    }


def _of_factorys_base(values: Values) -> dict[str, Any]:
    """model/model_utils/quantization.py `configure_quantization`."""
    if values["quantization_bit"] != 4:
        return {"load_in_4bit": False, "load_in_8bit": values["quantization_bit"] == 8}
    dtype = values["compute_dtype"]
    packed = (values["quantization_type"], dtype, dtype, values["double_quantization"])
    names = (f"quantization.{each}" for each in _STORED)
    return {"load_in_4bit": True, **dict(zip(names, packed, strict=True))}


# ── Axolotl 0.19.0 ───────────────────────────────────────────────────────────────────────────────

_NAMES = {
    "base_model": "model_name_or_path",
    "sequence_len": "max_length",
    "micro_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "lr_scheduler": "lr_scheduler_type",
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "revision_of_model": "model_revision",
    "sample_packing": "packing",
    "attn_implementation": "attn_implementation",
}
_OF_ADAPTER = {
    "lora_r": "r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "peft_use_dora": "use_dora",
    "peft_use_rslora": "use_rslora",
}
_BY_MACHINE = ("dataset_num_proc", "dataloader_num_workers")
"""utils/schemas/config.py: unsaid they follow from the machine's processors and devices."""
_BF16 = (True, "auto", "full")


def of_axolotl(answer: Values) -> dict[str, Any]:
    """What Axolotl has once `validate_config` has run, and what it does next with it."""
    values: Values = answer["values"]
    found = _same(values)
    found |= {} if values.get("rl") else {"average_tokens_across_devices": False}
    found = {name: each for name, each in found.items() if name not in _BY_MACHINE}
    named = {name: values[key] for key, name in _NAMES.items() if values.get(key) is not None}
    found = (
        found if (values.get("max_steps") or -1) > 0 else {**found, _EPOCHS: values["num_epochs"]}
    )
    share = values.get("val_set_size") or None
    return {
        **found,
        **named,
        "warmup": _rise(values.get("warmup_steps") or values.get("warmup_ratio") or 0, values, int),
        "datasets": [_set(_placed(each)) for each in values.get("datasets") or ()],
        "test_split_size": share,
        "save_total_limit": values.get("save_total_limit") or 4,
        **({"bf16": True, "dtype": "bfloat16"} if values.get("bf16") in _BF16 else {}),
        "optim": CLASSES.get(values["optimizer"], values["optimizer"]),
        "use_peft": bool(values.get("adapter")),
        **_rhythm(values),
        **_cut_up(values, values.get("fsdp_config")),
        **_recomputed(values),
        **(_of_its_adapter(values) if values.get("adapter") else {}),
        **(_of_its_base(values) if values.get("load_in_4bit") else {}),
    }


_FILES = ("json", "csv", "parquet", "arrow", "text")


def _placed(said: Values) -> Values:
    """utils/data/shared.py `load_dataset_with_config`: a kind of file goes before the file."""
    kind = said.get("ds_type")
    if kind in _FILES and not said.get("data_files"):
        return {"path": kind, "data_files": said["path"], "split": said.get("split")}
    return said


def _rhythm(values: Values) -> dict[str, Any]:
    """utils/config/__init__.py, core/builders/base.py `_configure_save_and_eval_strategy`."""
    saves, times = _steps(values, "save"), _steps(values, "eval")
    word = values.get("eval_strategy") or "no"
    found = {"save_strategy": values.get("save_strategy") or "epoch"}
    found |= {"save_strategy": "steps", "save_steps": saves} if saves else {}
    if not values.get("val_set_size") and not values.get("test_datasets"):
        return {**found, "eval_strategy": "no", "eval_steps": None, "eval_on_start": False}
    if times:
        return {**found, "eval_strategy": "steps", "eval_steps": times, "eval_on_start": True}
    return {**found, "eval_strategy": word, "eval_on_start": word != "no", "eval_steps": None}


def _steps(values: Values, kind: str) -> float | None:
    """So many times an epoch as a share of all steps, else what is said of steps."""
    often = (values.get(f"{kind}s_per_epoch") or 0) * values["num_epochs"]
    return 1 / often if often > 1 else values.get(f"{kind}_steps")


def _cut_up(values: Values, said: Values | None) -> dict[str, Any]:
    """transformers 5.16.1 training_args.py `_process_fsdp_args`, which it hands `fsdp_config`."""
    if not said:
        return {}
    is_first = (values.get("fsdp_version") or said.get("fsdp_version") or 1) == 1
    classes = said.get("transformer_layer_cls_to_wrap")
    return {
        "fsdp.version": 1 if is_first else 2,
        "fsdp.offload": bool(said.get("offload_params")),
        "fsdp.state_dict": said.get("state_dict_type", "FULL_STATE_DICT"),
        "fsdp.loading": bool(said.get("cpu_ram_efficient_loading")),
        "fsdp.recomputes": bool(said.get("activation_checkpointing")),
        **({"fsdp.classes": classes.split(",")} if classes else {}),
        "fsdp.original": said.get("use_orig_params", True),
        "fsdp.reshard": said.get("reshard_after_forward", True),
    }


def _recomputed(values: Values) -> dict[str, Any]:
    """core/builders/base.py `_configure_gradient_checkpointing`, utils/config/__init__.py."""
    is_on = bool(values.get("gradient_checkpointing"))
    said = values.get("gradient_checkpointing_kwargs") or {"use_reentrant": not values.get("rl")}
    by_fsdp = (values.get("fsdp_config") or {}).get("activation_checkpointing")
    if values.get("activation_offloading") or by_fsdp:
        return {}
    return {"gradient_checkpointing": is_on, **({**said} if is_on else {})}


def _of_its_adapter(values: Values) -> dict[str, Any]:
    """loaders/adapter.py `_build_peft_lora_config`.

    core/training_args.py `AxolotlDPOConfig` leaves TRL's disable_dropout on.
    """
    targets = values.get("lora_target_modules") or ()
    named = targets if isinstance(targets, str) else sorted(targets)
    found = {name: values.get(key) or None for key, name in _OF_ADAPTER.items()} | {
        "bias": "none",
        "modules_to_save": sorted(values.get("lora_modules_to_save") or ()) or None,
        "target_modules": "all-linear" if values.get("lora_target_linear") else named,
    }
    found |= {"lora_dropout": None} if values.get("rl") in ("dpo", "ipo") else {}
    return {f"adapter.{key}": each for key, each in found.items()}


def _of_its_base(values: Values) -> dict[str, Any]:
    """loaders/model.py `_set_quantization_config`."""
    said = values.get("bnb_config_kwargs") or {}
    usual = ("nf4", "bfloat16", "bfloat16", True)
    names = ("quant_type", "quant_storage", "compute_dtype", "use_double_quant")
    packed = (said.get(f"bnb_4bit_{name}", each) for name, each in zip(names, usual, strict=True))
    return {f"quantization.{key}": each for key, each in zip(_STORED, packed, strict=True)}
