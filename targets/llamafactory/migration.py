"""LLaMA-Factory's keys without a slot: TRL's keys for them, or what TRL does instead."""

import re
from collections.abc import Mapping
from typing import Final

from tunec.compiler.consumers.moved_keys import Carry, carried, gone, gone_unless, only_here
from tunec.compiler.lints.kinds import EXPLAINED
from tunec.compiler.target import Json
from tunec.targets.answers import answers_by
from tunec.targets.llamafactory import user_data
from tunec.targets.read_only import means_every_layer, split_names
from tunec.targets.rows import TRAINING_DATA

_SOURCE: Final = "llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py, model_args.py"
_TRAINING_ARGUMENTS: Final = "llamafactory 0.9.3 to 0.9.5 hparams/training_args.py"
_MEGATRON: Final = "llamafactory 0.9.4 to 0.9.5 hparams/training_args.py `McaTrainingArguments`"

_OPTIMIZER: Final = (
    "it is an optimizer that LLaMA-Factory makes itself: the Trainer has no such one"
)
_LOSS: Final = "the loss is LLaMA-Factory's own: `trl sft` has nll and dft"
_FP8: Final = "products in FP8 are no dtype of the Trainer's arguments"
_ENGINE: Final = "it is an argument of Megatron, another engine than the Trainer's"
_EXPERTS: Final = "KTransformers computes experts on the host, which no other trainer does"
_LAYERS: Final = "some of the layers alone are trained: `trl sft` trains all weights or LoRA's"
_OFT: Final = "TRL's scripts make LoRA of PEFT's adapters alone: OFT needs a script of one's own"
_START: Final = "TRL's scripts have no key for how LoRA begins: PiSSA needs a script of one's own"
_RATES: Final = "the Trainer has one rate for all weights, and LoRA+ two"
_ODDS: Final = (
    "of other preference methods than DPO there is no plan; `trl` has scripts of their own"
)

_REASONS: Final = (
    (_OPTIMIZER, _SOURCE, ("use_adam_mini", "use_muon", "use_badam")),
    (_LOSS, _SOURCE, ("use_asft_loss", "asft_alpha", "use_eaft_loss", "eaft_alpha")),
    (
        _OPTIMIZER,
        _SOURCE,
        tuple(
            f"badam_{name}"
            for name in (
                *("mode", "start_block", "switch_mode", "switch_interval", "update_ratio"),
                *("mask_mode", "verbose"),
            )
        ),
    ),
    (_FP8, _TRAINING_ARGUMENTS, ("fp8", "fp8_backend", "fp8_enable_fsdp_float8_all_gather")),
    (
        _LAYERS,
        _SOURCE,
        (
            *("freeze_trainable_layers", "freeze_trainable_modules", "freeze_extra_modules"),
            *("use_llama_pro", "mixture_of_depths"),
        ),
    ),
    (_OFT, _SOURCE, ("oft_rank", "oft_block_size", "oft_target", "module_dropout")),
    (_START, _SOURCE, ("pissa_init", "pissa_iter", "pissa_convert")),
    (_RATES, _SOURCE, ("loraplus_lr_ratio", "loraplus_lr_embedding")),
    (_EXPERTS, _SOURCE, ("use_kt", "kt_weight_path", "kt_use_lora_experts")),
    (
        _ENGINE,
        _MEGATRON,
        (
            *("tensor_model_parallel_size", "sequence_parallel", "pipeline_model_parallel_size"),
            *("expert_model_parallel_size", "bias_activation_fusion", "apply_rope_fusion"),
            *("use_distributed_optimizer", "overlap_param_gather", "overlap_grad_reduce"),
            *("moe_grouped_gemm", "moe_token_dispatcher_type", "recompute_granularity"),
        ),
    ),
)
_ONLY_HERE: Final = (
    *(only_here(name, source, why) for why, source, names in _REASONS for name in names),
    only_here("finetuning_type", _SOURCE, _OFT, "oft"),
    only_here("finetuning_type", _SOURCE, _LAYERS, "freeze"),
    only_here("stage", _SOURCE, _ODDS, "kto", "rm", "ppo"),
    only_here("pref_loss", _SOURCE, _ODDS, "orpo", "simpo"),
)

_DATA: Final = "llamafactory 0.9.1 to 0.9.5 hparams/data_args.py `DataArguments`"
_MODEL: Final = "llamafactory 0.9.1 to 0.9.5 hparams/model_args.py"
_TUNING: Final = "llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py"
_TRAINING: Final = "llamafactory 0.9.1 to 0.9.5 hparams/training_args.py"
_MIXTURE: Final = "trl 0.22.0 to 1.16.0 scripts/utils.py `DatasetMixtureConfig`"


def _parts(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The data sets, each cut to `max_samples`, if a share is split off for evaluation."""
    names, most = user_data.places(found, "dataset"), found.get("max_samples")
    share = found.get("val_size") or None
    is_mixed = found.get("mix_strategy", "concat") == "concat"
    if not names or not is_mixed or found.get("eval_dataset") or not share:
        return {}
    return {"datasets": [_cut(each, most) for each in names], "test_split_size": share}


def _cut(place: Mapping[str, Json], most: Json) -> Mapping[str, Json]:
    return {**place, "split": f"{place.get('split', 'train')}[:{most}]"} if most else place


def _objective(found: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"loss_type": "dft"} if found["use_dft_loss"] is True else {}


_PROJECTED: Final[Mapping[str, Mapping[str, tuple[str, Json]]]] = {
    "galore": {
        "rank": ("rank", 16),
        "update_interval": ("update_proj_gap", 200),
        "scale": ("scale", 2.0),
        "proj_type": ("proj_type", "std"),
    },
    "apollo": {
        "rank": ("rank", 16),
        "update_interval": ("update_proj_gap", 200),
        "scale": ("scale", 32.0),
        "proj": ("proj", "random"),
        "proj_type": ("proj_type", "std"),
        "scale_type": ("scale_type", "channel"),
    },
}
"""The arguments of an optimizer with projected gradients: LLaMA-Factory's key, the name in the
Trainer's `optim_args`, and LLaMA-Factory's default, which differs from the Trainer's."""
_HEADLESS: Final = "(?!.*lm_head).*"
"""All linear modules except the head: the Trainer takes a text as a regular expression, and uses
only the linear modules that match. LLaMA-Factory's `find_all_linear_modules` leaves out the
head."""


def _projected(name: str) -> Carry:
    """GaLore or APOLLO without weight decay, which only LLaMA-Factory's implementation applies."""
    words = _PROJECTED[name]

    def write(found: Mapping[str, Json]) -> Mapping[str, Json]:
        is_plain = found.get("optim", "adamw_torch") == "adamw_torch"
        if found.get(f"use_{name}") is not True or found.get("weight_decay") or not is_plain:
            return {}
        targets = split_names(found.get(f"{name}_target", "all"))
        told = {word: found.get(f"{name}_{key}", like) for key, (word, like) in words.items()}
        return {
            "optim": f"{name}_adamw{'_layerwise' * bool(found.get(f'{name}_layerwise'))}",
            "optim_args": ",".join(f"{key}={value}" for key, value in told.items()),
            "optim_target_modules": _HEADLESS if [*targets] == ["all"] else [*targets],
        }

    return Carry(
        (f"use_{name}", *(f"{name}_{key}" for key in ("target", "layerwise", *words))),
        write,
        f"{_TUNING}; train/trainer_utils.py `_create_{name}_optimizer`; transformers 4.51.3 to "
        "5.23.0 trainer_optimizer.py `_setup_low_rank_optimizer`",
        beside=("optim", "weight_decay"),
        slots=("optimizer.name", "optimizer.kernel"),
    )


_EXPERTS_LOSS: Final = "llamafactory 0.9.1 to 0.9.5 model/model_utils/moe.py `configure_moe`"


ANSWERS: Final = answers_by(
    "train_on_prompt",
    False,
    True,
    "llamafactory 0.9.1 to 0.9.5 data/processor/supervised.py, 0.9.1 data/processors/supervised.py",
)


def does(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """What LLaMA-Factory gives the Trainer: experts are balanced by a loss if its weight is set."""
    return {"router_aux_loss_coef": found.get("moe_aux_loss_coef") or 0.0, **ANSWERS.does(found)}


CARRIES: Final = (
    carried(
        "moe_aux_loss_coef",
        "router_aux_loss_coef",
        f"{_EXPERTS_LOSS}; trl 1.9.2 to 1.16.0 trainer/sft_config.py",
    ),
    *map(_projected, _PROJECTED),
    Carry(
        ("streaming",),
        lambda found: {"dataset_streaming": True} if found["streaming"] is True else {},
        f"{_DATA}; trl scripts/utils.py `ScriptArguments`",
    ),
    Carry(
        ("val_size",),
        _parts,
        f"{_DATA}: of all; {_MIXTURE}",
        beside=("dataset", "max_samples", "mix_strategy", "eval_dataset", "dataset_dir", EXPLAINED),
        slots=(*TRAINING_DATA, "data.evaluation"),
    ),
    Carry(
        ("use_dft_loss",),
        _objective,
        f"{_TUNING}; trl 0.24.0 to 1.16.0 trainer/sft_config.py",
        slots=("objective.loss",),
    ),
    carried("preprocessing_num_workers", "dataset_num_proc", f"{_DATA}; trl trainer/sft_config.py"),
    carried("model_revision", "model_revision", f"{_MODEL}; trl trainer/model_config.py"),
    carried("dpo_label_smoothing", "label_smoothing", f"{_TUNING}; trl trainer/dpo_config.py"),
)


_CUT: Final = re.compile(r"train\[:(\d+)\]")


def _own_cut(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """`max_samples` for each data set, if LLaMA-Factory's dataset_info.json lists them all."""
    parts = found.get("datasets")
    if not isinstance(parts, list) or any({*each} != {"path", "split"} for each in parts):
        return {}
    names, cuts = [each["path"] for each in parts], {each["split"] for each in parts}
    cut = _CUT.fullmatch(next(iter(cuts), ""))
    if len(cuts) != 1 or cut is None or any(re.search(r"[/.,]", each) for each in names):
        return {}
    return {"dataset": ",".join(names), "max_samples": int(cut[1])}


def _own_share(found: Mapping[str, Json]) -> Mapping[str, Json]:
    share = found["test_split_size"]
    return {"val_size": share} if share else {}


def _own_targets(found: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"lora_target": "all"} if means_every_layer(found["lora_target_modules"]) else {}


def _own_objective(found: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"stage": "sft", "use_dft_loss": True} if found["loss_type"] == "dft" else {}


TAKES: Final = (
    *ANSWERS.takes,
    carried(
        "router_aux_loss_coef",
        "moe_aux_loss_coef",
        f"trl 1.9.2 to 1.16.0 trainer/sft_config.py; {_EXPERTS_LOSS}",
    ),
    Carry(
        ("lora_target_modules",),
        _own_targets,
        "peft 0.13 to 0.21 tuners/tuners_utils.py; llamafactory 0.9.1 to 0.9.5 "
        "model/model_utils/misc.py `find_all_linear_modules`",
        slots=("adapter.targets",),
    ),
    Carry(("datasets",), _own_cut, f"{_MIXTURE}; {_DATA}: of each data set", slots=TRAINING_DATA),
    Carry(
        ("test_split_size",), _own_share, f"{_MIXTURE}; {_DATA}: of all", slots=("data.evaluation",)
    ),
    Carry(
        ("dataset_streaming",),
        lambda found: {"streaming": True} if found["dataset_streaming"] is True else {},
        f"trl scripts/utils.py `ScriptArguments`; {_DATA}",
    ),
    carried("dataset_num_proc", "preprocessing_num_workers", f"trl trainer/sft_config.py; {_DATA}"),
    carried("model_revision", "model_revision", f"trl trainer/model_config.py; {_MODEL}"),
    carried("label_smoothing", "dpo_label_smoothing", f"trl trainer/dpo_config.py; {_TUNING}"),
    Carry(
        ("loss_type",),
        _own_objective,
        f"{_TUNING}; trl trainer/sft_config.py",
        slots=("objective.kind", "objective.loss", "objective.beta"),
    ),
)
"""The inverse of `CARRIES`."""


LEAVES: Final = (
    *_ONLY_HERE,
    gone_unless("do_train", _TRAINING, "the script trains, and does nothing else", True),
    gone("do_eval", _TRAINING, "the strategy says when to evaluate"),
    gone("plot_loss", _TUNING, "no picture is drawn of the loss"),
    gone("print_param_status", _MODEL, "parameters are not listed"),
    gone("overwrite_cache", _DATA, "`datasets` makes its cache anew where the data changed"),
    gone("cache_dir", _MODEL, "HF_HOME says where downloads are kept"),
    gone("low_cpu_mem_usage", _MODEL, "the library decides how weights are read"),
    gone("use_fast_tokenizer", _MODEL, "the tokenizer's own class is used"),
    gone("dataset_dir", _DATA, "data sets are found by their paths or names"),
    gone("preprocessing_batch_size", _DATA, "samples are prepared in batches of 1000"),
    gone_unless("freeze_language_model", _TUNING, "the language model is trained", False),
    gone_unless("use_dft_loss", _TUNING, "the loss is that of likelihood", False),
    gone("use_v1_kernels", _MODEL, "the model's own kernels compute the same"),
    gone_unless("tokenized_path", _DATA, "samples are made tokens at the start of each run"),
    gone_unless("media_dir", _DATA, "samples hold images, or their paths"),
    gone_unless("template", _DATA, "the chat template of the tokenizer is used"),
    gone_unless("default_system", _DATA, "the samples hold their own system messages"),
    gone_unless("tool_format", _DATA, "the chat template of the tokenizer formats tools"),
    gone_unless("enable_thinking", _DATA, "the chat template of the tokenizer decides"),
    gone_unless("mask_history", _DATA, "all turns of the assistant count", False),
    gone_unless("flash_attn", _MODEL, "the model's own attention is used", "auto"),
    gone_unless("image_max_pixels", _MODEL, "the processor of the model sizes images"),
    gone_unless("image_min_pixels", _MODEL, "the processor of the model sizes images"),
    gone_unless("video_max_pixels", _MODEL, "the processor of the model sizes videos"),
    gone_unless("video_min_pixels", _MODEL, "the processor of the model sizes videos"),
    gone_unless("video_fps", _MODEL, "the processor of the model samples videos"),
    gone_unless("video_maxlen", _MODEL, "the processor of the model samples videos"),
    gone_unless("upcast_layernorm", _MODEL, "norms keep the dtype of the weights", False),
    gone_unless("upcast_lmhead_output", _MODEL, "logits keep the dtype of the weights", False),
    gone_unless("quantization_device_map", _MODEL, "weights lie on the device of their process"),
    *(
        gone(f"ray_{name}", _TRAINING, "the launcher starts the processes")
        for name in ("run_name", "storage_path", "num_workers", "storage_filesystem")
    ),
    gone("resources_per_worker", _TRAINING, "the launcher starts the processes"),
    gone("placement_strategy", _TRAINING, "the launcher starts the processes"),
)
"""What TRL does without each of these keys."""
