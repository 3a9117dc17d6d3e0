"""Axolotl's keys without a slot: what TRL's file holds for them, or what TRL does instead."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Carry, Moved, gone, never, one_of
from tunec.compiler.target import Json
from tunec.targets.axolotl.rewards import IN_BOTH, OF_A_SERVER
from tunec.targets.huggingface.training import OPTIMIZER

CONFIG: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/config.py `AxolotlInputConfig`"
MODEL: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/model.py `ModelInputConfig`"
BUILDER: Final = "axolotl 0.8.1 to 0.19.0 core/builders/base.py `TrainerBuilderBase`"
_TRACKERS: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/integrations.py"
LIGER: Final = "axolotl 0.8.1 to 0.19.0 integrations/liger/args.py `LigerArgs`"
MIXTURE: Final = "trl 0.22.0 to 1.16.0 scripts/utils.py `DatasetMixtureConfig`"
TRL_SECTION: Final = "axolotl 0.13.2 to 0.19.0 utils/schemas/trl.py, vllm.py; cli/vllm_serve.py"
GRPO: Final = "trl 0.27.0 to 1.16.0 trainer/grpo_config.py `GRPOConfig`"
SFT: Final = "trl 0.18.2 to 1.16.0 trainer/sft_config.py `SFTConfig`"


# ── data ─────────────────────────────────────────────────────────────────────────────────────────

FILES: Final = ("json", "csv", "parquet", "arrow", "text")


def _part(said: Mapping[str, Json]) -> dict[str, Json]:
    """One of `datasets`, in the words of `load_dataset`: its prompts are another matter."""
    path, kind = said["path"], said.get("ds_type")
    held: dict[str, Json] = {"path": path}
    if kind in FILES and not said.get("data_files"):
        held = {"path": kind, "data_files": path}
    words = ("name", "split", "data_files")
    return {**held, **{key: said[key] for key in words if said.get(key) is not None}}


def _parts(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The data sets where a share is split off to evaluate on, or where one is a part of another.

    Rows say those that are used whole, with nothing or another data set to evaluate on.
    """
    parts, share = found.get("datasets"), found.get("val_set_size")
    every = [_part(each) for each in parts or ()]
    is_plain = all(each.keys() <= {"path"} or each.get("split") == "train" for each in every)
    if found.get("test_datasets") or not every or (is_plain and not share):
        return {}
    return {"datasets": every, **({"test_split_size": share} if share else {})}


# ── steps as shares of the run ───────────────────────────────────────────────────────────────────


def _share(times: Json, found: Mapping[str, Json]) -> float:
    """Axolotl takes it where it is below 1, and leaves `save_steps` or `eval_steps` else."""
    return float(1 / (times * (found.get("num_epochs") or 1)))


def _saves(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """`save_steps` below 1 is a share of all steps, for both; once in all is once an epoch."""
    times, steps = found.get("saves_per_epoch"), found.get("save_steps")
    if times:
        share = _share(times, found)
        if share < 1:
            return {"save_strategy": "steps", "save_steps": share}
        return {"save_strategy": found.get("save_strategy") or "epoch"}
    if times == 0:
        return {"save_strategy": "no"}
    is_share = isinstance(steps, float) and 0 < steps < 1
    if is_share:
        return {"save_strategy": "steps", "save_steps": steps}
    word = found.get("save_strategy")
    return {"save_strategy": word} if word in ("no", "best") else {}


def _evaluations(found: Mapping[str, Json]) -> Mapping[str, Json]:
    if not found.get("val_set_size") and not found.get("test_datasets"):
        return {}
    times, steps = found.get("evals_per_epoch"), found.get("eval_steps")
    if times:
        share = _share(times, found)
        if share < 1:
            return {"eval_strategy": "steps", "eval_steps": share}
        return {"eval_strategy": found.get("eval_strategy") or "no"}
    is_share = isinstance(steps, float) and 0 < steps < 1
    if is_share:
        return {"eval_strategy": "steps", "eval_steps": steps}
    if steps:
        return {}
    word = "no" if times == 0 else found.get("eval_strategy") or "epoch"
    return {"eval_strategy": word}


# ── words of the Trainer ─────────────────────────────────────────────────────────────────────────

OPTIMIZERS: Final = frozenset(
    {
        *("adamw_torch_4bit", "adamw_torch_8bit", "adamw_anyprecision", "ademamix", "adagrad"),
        *("ademamix_8bit", "paged_ademamix_32bit", "paged_ademamix_8bit", "rmsprop"),
        *("rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit", "grokadamw", "stable_adamw"),
        *("schedule_free_radam", "schedule_free_adamw", "schedule_free_sgd"),
        *("galore_adamw", "galore_adamw_8bit", "galore_adafactor", "apollo_adamw"),
    }
)
"""transformers 4.57.6 to 5.23.0 training_args.py `OptimizerNames`, beside those that slots have."""


def _optimizer(found: Mapping[str, Json]) -> Mapping[str, Json]:
    word = found["optimizer"]
    is_row = bool(OPTIMIZER[0].read({"optim": word}))
    return {"optim": word} if word in OPTIMIZERS and not is_row else {}


SCHEDULES: Final = ("cosine_with_restarts", "polynomial", "inverse_sqrt", "reduce_lr_on_plateau")


def _schedule(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """Other schedules by their names, and the cosine that ends above nothing."""
    least = found.get("cosine_min_lr_ratio")
    word = found.get("lr_scheduler") or "cosine"
    if least and word == "cosine" and not found.get("cosine_constant_lr_ratio"):
        arguments = {"min_lr_rate": least}
        return {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": arguments}
    return {"lr_scheduler_type": word} if word in SCHEDULES else {}


KERNELS: Final[Mapping[str, str]] = {
    "liger_rope": "rope",
    "liger_rms_norm": "rms_norm",
    "liger_layer_norm": "layer_norm",
    "liger_glu_activation": "swiglu",
}


def _liger(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """Liger's kernels; those that the model's own patch has not are no argument of it."""
    parts = {KERNELS[key]: bool(value) for key, value in found.items() if key in KERNELS}
    known = {name: value for name, value in parts.items() if name != "layer_norm"}
    if not any(known.values()):
        return {}
    return {"use_liger_kernel": True, "liger_kernel_config": known}


OWN_ATTENTION: Final = ("s2", "sage", "fp8")


def _attention(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """A kernel of the hub, or one that no slot has; xformers' computes what torch's own does.

    Others of Axolotl's own compute something else.
    """
    word = found["attn_implementation"]
    if not isinstance(word, str) or word in (*OWN_ATTENTION, *USUAL_ATTENTION):
        return {}
    return {"attn_implementation": "sdpa" if word == "xformers" else word}


USUAL_ATTENTION: Final = ("eager", "sdpa", "flash_attention_2", "flash_attention_3")


def _prompts(found: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"completion_only_loss": False} if found["train_on_inputs"] is True else {}


SCALES: Final[Mapping[bool, str]] = {True: "group", False: "none"}
"""Words of both programs for what was a switch: trl from 0.22, axolotl from 0.19."""


def _scales(found: Mapping[str, Json]) -> Mapping[str, Json]:
    said = found["trl.scale_rewards"]
    return {"scale_rewards": SCALES[said] if isinstance(said, bool) else said}


def _widths(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """Of an engine on the same devices; a server is told when it is started."""
    width = found["vllm.tensor_parallel_size"]
    return {"vllm_tensor_parallel_size": width} if found.get("trl.vllm_mode") == "colocate" else {}


def renamed(key: str, other: str, source: str) -> Carry:
    """A key that the other program has under another name, or under the same."""

    def write(found: Mapping[str, Json]) -> Mapping[str, Json]:
        return {} if found[key] in (None, "") else {other: found[key]}

    return Carry((key,), write, source)


CARRIES: Final = (
    Carry(
        ("datasets", "val_set_size"),
        _parts,
        f"{CONFIG}, utils/data/sft.py; {MIXTURE}",
        beside=("test_datasets",),
        slots=("data.train", "data.more", "data.evaluation"),
    ),
    Carry(
        ("saves_per_epoch", "save_steps", "save_strategy"),
        _saves,
        "axolotl 0.19.0 utils/config/__init__.py: 1.0 / (saves_per_epoch * num_epochs) below 1; "
        "core/builders/base.py `_configure_save_and_eval_strategy`",
        beside=("num_epochs",),
        slots=("schedule.save_steps",),
    ),
    Carry(
        ("evals_per_epoch", "eval_steps", "eval_strategy", "val_set_size"),
        _evaluations,
        f"axolotl 0.19.0 utils/config/__init__.py; {BUILDER}",
        beside=("num_epochs", "test_datasets"),
        slots=("schedule.evaluation_steps",),
    ),
    Carry(
        ("optimizer",),
        _optimizer,
        "axolotl 0.8.1 to 0.19.0 utils/schemas/enums.py `CustomSupportedOptimizers`",
        slots=("optimizer.name", "optimizer.kernel"),
    ),
    Carry(
        ("lr_scheduler", "cosine_min_lr_ratio"),
        _schedule,
        f"{BUILDER}; transformers 4.40.2 to 5.23.0 optimization.py",
        beside=("cosine_constant_lr_ratio",),
        slots=("schedule.kind", "schedule.arguments"),
    ),
    Carry(
        tuple(KERNELS),
        _liger,
        f"{LIGER}; transformers 4.57.6 to 5.23.0 integrations/liger.py `apply_liger_kernel`",
    ),
    Carry(
        ("attn_implementation",),
        _attention,
        f"{CONFIG}; trl 0.8.6 to 1.16.0 trainer/model_config.py",
        slots=("attention.implementation",),
    ),
    Carry(
        ("streaming",),
        lambda found: {"dataset_streaming": True} if found["streaming"] is True else {},
        f"{CONFIG}; trl scripts/utils.py `ScriptArguments`",
    ),
    Carry(("train_on_inputs",), _prompts, f"{CONFIG}; {SFT}"),
    *(renamed(f"trl.{key}", key, f"{TRL_SECTION}; {GRPO}") for key in IN_BOTH),
    Carry(("trl.scale_rewards",), _scales, f"{TRL_SECTION}; {GRPO}"),
    renamed("trl.use_liger_loss", "use_liger_kernel", f"{TRL_SECTION}; {GRPO}"),
    Carry(
        ("vllm.tensor_parallel_size",),
        _widths,
        f"axolotl 0.13.2 to 0.19.0 utils/schemas/vllm.py; {GRPO}",
        beside=("trl.vllm_mode",),
    ),
    renamed("special_tokens.pad_token", "pad_token", f"{CONFIG}; {SFT}"),
    renamed("special_tokens.eos_token", "eos_token", f"{CONFIG}; {SFT}"),
    renamed("eval_sample_packing", "eval_packing", f"{CONFIG}; {SFT}"),
    renamed("dataset_processes", "dataset_num_proc", f"{CONFIG}; {SFT}"),
    renamed("dataset_num_proc", "dataset_num_proc", f"{CONFIG}; {SFT}"),
    renamed("noisy_embedding_alpha", "neftune_noise_alpha", f"{CONFIG} `map_fields`"),
    renamed("adam_eps", "adam_epsilon", f"{BUILDER}: the older name"),
    renamed("wandb_name", "run_name", BUILDER),
    renamed("revision_of_model", "model_revision", f"{MODEL}; trl trainer/model_config.py"),
    renamed(
        "lora_target_parameters",
        "lora_target_parameters",
        "axolotl 0.13.2 to 0.19.0 utils/schemas/peft.py; trl 0.22.2 to 1.16.0 model_config.py",
    ),
)


# ── what TRL does by itself ──────────────────────────────────────────────────────────────────────

_INTEGRATIONS: Final = frozenset(
    {
        "axolotl.integrations.liger.LigerPlugin",
        "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin",
        "axolotl.integrations.kernels.KernelsPlugin",
        "axolotl.integrations.swanlab.SwanLabPlugin",
    }
)


def _computes_the_same(plugins: Any) -> bool:
    return isinstance(plugins, list) and _INTEGRATIONS.issuperset(map(str, plugins))


def _other(key: str, instead: str, source: str, *same: Any) -> Moved:
    """A key whose program does so by itself; `same` are values with which TRL does, too."""
    return gone(key, source, instead, changes_nothing=one_of(*same) if same else never)


_TOKENIZER: Final = "the tokenizer is used as it was saved"
_KERNELS: Final = "the adapter's products are computed by PEFT: the same, and slower"
_SERVER: Final = "`trl vllm-serve` is told when it is started"
_VARIABLES: Final = "the tracker's own variables say it"

_OF_TRACKERS: Final = (
    *("wandb_project", "wandb_entity", "wandb_watch", "wandb_run_id", "wandb_log_model"),
    *("wandb_mode", "mlflow_tracking_uri", "mlflow_experiment_name", "comet_project_name"),
    *("use_swanlab", "swanlab_project", "swanlab_experiment_name", "swanlab_description"),
    *("swanlab_mode", "swanlab_workspace", "swanlab_log_model", "swanlab_log_completions"),
    *("swanlab_completion_log_interval", "swanlab_completion_max_buffer", "use_otel_metrics"),
    *("otel_metrics_host", "otel_metrics_port"),
)
_OF_CLASSES: Final = ("model_type", "tokenizer_type", "processor_type", "type_of_model")

LEAVES: Final = (
    *(gone(f"vllm.{key}", TRL_SECTION, _SERVER) for key in OF_A_SERVER),
    gone(
        "plugins",
        CONFIG,
        "their kernels compute the same; the loss is computed in pieces by TRL's own",
        changes_nothing=_computes_the_same,
    ),
    gone("cut_cross_entropy", CONFIG, "TRL computes the loss in pieces by its own"),
    gone("strict", CONFIG, "it is Axolotl's own check of its keys"),
    gone("dataset_prepared_path", CONFIG, "`datasets` keeps what it prepared in its cache"),
    gone("dataset_shard_num", CONFIG, "the cache is not cut into shards"),
    *(
        gone(key, MODEL, "the class is the one that the model's config names")
        for key in _OF_CLASSES
    ),
    *(gone(key, _TRACKERS, _VARIABLES) for key in _OF_TRACKERS),
    *(
        gone(key, CONFIG, _KERNELS)
        for key in ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel")
    ),
    *(
        gone(key, CONFIG, "the model's own experts are run: the same, and slower")
        for key in ("use_scattermoe", "use_sonicmoe", "experts_implementation")
    ),
    *(
        gone(key, CONFIG, "the model's own kernels compute the same")
        for key in (
            *("use_kernels", "liger_rms_norm_gated", "liger_layer_norm", "flash_attn_rms_norm"),
            *("flash_attn_fuse_mlp", "flash_attn_cross_entropy", "flash_attn_fuse_qkv"),
            *("fused_attn_kernel", "flex_attn_compile_kwargs", "liger_fused_linear_cross_entropy"),
        )
    ),
    gone("experimental_skip_move_to_device", CONFIG, "weights are read onto their device"),
    gone("low_cpu_mem_usage", CONFIG, "the library decides how weights are read"),
    gone("hf_use_auth_token", CONFIG, "the token of the hub is found by itself"),
    gone("tokenizer_use_fast", CONFIG, "the tokenizer's own class is used"),
    gone("debug", CONFIG, "it is a switch of Axolotl's log"),
    gone("ddp", CONFIG, "several processes run data-parallel by themselves"),
    gone("full_finetune", CONFIG, "without an adapter all is trained"),
    gone("gptq", CONFIG, "the checkpoint says how it is stored", changes_nothing=one_of(False)),
    gone("skip_prepare_dataset", CONFIG, "samples with images are prepared as they are read"),
    _other(
        "pad_to_sequence_len", "samples are padded to the longest of their batch", CONFIG, False
    ),
    _other(
        "chat_template", "the chat template of the tokenizer is used", CONFIG, "tokenizer_default"
    ),
    _other("eot_tokens", "the tokenizer's end of text ends a turn", CONFIG),
    _other("tokenizer_use_mistral_common", _TOKENIZER, MODEL, False),
    _other("tokenizer_config", _TOKENIZER, MODEL),
    _other("tokenizer_legacy", _TOKENIZER, MODEL),
    *(
        _other(f"special_tokens.{name}", _TOKENIZER, CONFIG)
        for name in ("bos_token", "unk_token", "pad_token", "eos_token")
    ),
    *(
        _other(f"tokens.{name}", _TOKENIZER, CONFIG)
        for name in ("bos_token", "unk_token", "pad_token", "eos_token")
    ),
    _other(
        "train_on_inputs", "samples of prompts and completions train on completions", CONFIG, False
    ),
    _other("eval_sample_packing", "samples to evaluate on are packed as those to train on", CONFIG),
    _other("loss_watchdog_threshold", "no run is stopped for a high loss", BUILDER),
    _other("loss_watchdog_patience", "no run is stopped for a high loss", BUILDER),
    _other("early_stopping_patience", "no run is stopped early", BUILDER),
    _other("shuffle_merged_datasets", "data is shuffled while training", CONFIG, True),
    _other("dataset_exact_deduplication", "samples that are there twice stay", CONFIG, False),
    _other("auto_resume_from_checkpoints", "a run begins anew", CONFIG, False),
    _other("device_map", "weights lie on the device of their process", MODEL),
    _other("quantize_moe_experts", "experts stay in the dtype of the weights", MODEL, False),
    _other("lora_fan_in_fan_out", "PEFT knows how the layers are stored", CONFIG, False),
    _other("max_packed_sequence_len", "sample packing has the length of sequences", CONFIG),
    _other("sample_packing_sequentially", "samples are packed in any order", CONFIG, False),
    _other("curriculum_sampling", "samples come in any order", CONFIG, False),
    _other("cosine_constant_lr_ratio", "the rate falls to the end", CONFIG, 0),
    _other("model_config", "the model's own config holds", MODEL),
    _other("resize_token_embeddings_to_32x", "embeddings keep their size", MODEL, False),
    _other("gemma4_hybrid_attn_impl", "one attention is used for all layers", CONFIG, False),
    _other("dp_shard_size", "the launcher says how many devices there are", CONFIG, 1),
    _other("dp_replicate_size", "the launcher says how many devices there are", CONFIG, 1),
    _other("use_ray", "the launcher starts the processes", CONFIG, False),
    _other("ray_num_workers", "the launcher starts the processes", CONFIG),
    gone(
        "bf16",
        CONFIG,
        "auto is bf16, unless the devices have none",
        changes_nothing=one_of("auto"),
    ),
    _other("streaming_multipack_buffer_size", "samples are packed as they come", CONFIG),
    _other("eval_table_size", "no answers are shown", BUILDER, 0),
    _other("eval_max_new_tokens", "no answers are written", BUILDER),
    _other("do_causal_lm_eval", "the loss alone is computed", BUILDER, False),
    _other("eval_causal_lm_metrics", "the loss alone is computed", BUILDER),
)
"""What TRL does without each of these keys."""
