"""Axolotl's keys without a slot: their equivalent in TRL's file, or what TRL does instead."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from tunec.compiler.consumers.moved_keys import Carry, carried
from tunec.compiler.target import Json
from tunec.targets.answers import answers_by
from tunec.targets.axolotl.rewards import IN_BOTH
from tunec.targets.huggingface.fsdp_row import ARGUMENTS
from tunec.targets.huggingface.training import OPTIMIZER
from tunec.targets.rows import TRAINING_DATA

CONFIG: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/config.py `AxolotlInputConfig`"
MODEL: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/model.py `ModelInputConfig`"
BUILDER: Final = "axolotl 0.8.1 to 0.19.0 core/builders/base.py `TrainerBuilderBase`"
LIGER: Final = "axolotl 0.8.1 to 0.19.0 integrations/liger/args.py `LigerArgs`"
MIXTURE: Final = "trl 0.22.0 to 1.16.0 scripts/utils.py `DatasetMixtureConfig`"
TRL_SECTION: Final = "axolotl 0.13.2 to 0.19.0 utils/schemas/trl.py, vllm.py; cli/vllm_serve.py"
GRPO: Final = "trl 0.27.0 to 1.16.0 trainer/grpo_config.py `GRPOConfig`"
REWARD: Final = "trl 0.24.0 to 1.16.0 trainer/reward_config.py `RewardConfig`"
CENTRE: Final = "center_rewards_coefficient"
"""Both programs' key for the weight of rewards' distance from zero."""
SFT: Final = "trl 0.18.2 to 1.16.0 trainer/sft_config.py `SFTConfig`"


# ── data ─────────────────────────────────────────────────────────────────────────────────────────

FILES: Final = ("json", "csv", "parquet", "arrow", "text")


def _part(said: Mapping[str, Json]) -> dict[str, Json]:
    """An entry of `datasets` as arguments of `load_dataset`, without the form of its prompts."""
    path, kind = said["path"], said.get("ds_type")
    held: dict[str, Json] = {"path": path}
    if kind in FILES and not said.get("data_files"):
        held = {"path": kind, "data_files": path}
    words = ("name", "split", "data_files")
    return {**held, **{key: said[key] for key in words if said.get(key) is not None}}


def _parts(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The data sets if a share is split off to evaluate on, or if one is only partly used.

    Rows express data sets that are used whole, with no or separate evaluation data.
    """
    parts, share = found.get("datasets"), found.get("val_set_size")
    every = [_part(each) for each in parts or ()]
    is_plain = all(each.keys() <= {"path"} or each.get("split") == "train" for each in every)
    if found.get("test_datasets") or not every or (is_plain and not share):
        return {}
    return {"datasets": every, **({"test_split_size": share} if share else {})}


# ── steps as shares of the run ───────────────────────────────────────────────────────────────────


def _share(times: Json, found: Mapping[str, Json]) -> float:
    """The interval as a share of all steps.

    Axolotl uses a share below 1, and else leaves `save_steps` or `eval_steps` as they are.
    """
    return float(1 / (times * (found.get("num_epochs") or 1)))


def _saves(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """When to save. `save_steps` below 1 is a share of all steps in both programs."""
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


def _evaluations(usual: str, found: Mapping[str, Json]) -> Mapping[str, Json]:
    """When to evaluate; `usual` is the strategy if there is evaluation data but no key sets one."""
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
    word = "no" if times == 0 else found.get("eval_strategy") or usual
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
"""Optimizers of transformers 4.57.6 to 5.23.0 training_args.py `OptimizerNames` without a slot's
value."""


def _optimizer(found: Mapping[str, Json]) -> Mapping[str, Json]:
    word = found["optimizer"]
    is_row = bool(OPTIMIZER[0].read({"optim": word}))
    return {"optim": word} if word in OPTIMIZERS and not is_row else {}


_ARGUMENTS: Final = (
    *("bf16_stochastic_round", "rank", "update_proj_gap", "scale", "proj", "proj_type"),
    *("scale_type", "alpha", "beta3", "t_alpha", "t_beta3", "momentum_dtype", "variance_dtype"),
)
"""Arguments of the Trainer's optimizers: transformers 4.57.6 to 5.23.0 trainer_optimizer.py."""


def _arguments(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """An optimizer's arguments as one text."""
    start = "optim_args."
    parts = {key.removeprefix(start): each for key, each in found.items() if key.startswith(start)}
    said = ",".join(f"{key}={value}" for key, value in parts.items()) or found.get("optim_args")
    return {"optim_args": said} if isinstance(said, str) and said else {}


SCHEDULES: Final = ("cosine_with_restarts", "polynomial", "inverse_sqrt", "reduce_lr_on_plateau")


def _schedule(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """Schedules without a slot by their names, and the cosine with a minimum rate."""
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
    """Liger's kernels, without layer_norm, which a model's own patch does not accept."""
    parts = {KERNELS[key]: bool(value) for key, value in found.items() if key in KERNELS}
    known = {name: value for name, value in parts.items() if name != "layer_norm"}
    if not any(known.values()):
        return {}
    return {"use_liger_kernel": True, "liger_kernel_config": known}


OWN_ATTENTION: Final = ("s2", "sage", "fp8")


def _attention(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """A kernel of the Hub, or one without a slot; xformers is equivalent to torch's own.

    Axolotl's other own kernels compute something else.
    """
    word = found["attn_implementation"]
    if not isinstance(word, str) or word in (*OWN_ATTENTION, *USUAL_ATTENTION):
        return {}
    return {"attn_implementation": "sdpa" if word == "xformers" else word}


USUAL_ATTENTION: Final = ("eager", "sdpa", "flash_attention_2", "flash_attention_3")


SCALES: Final[Mapping[bool, str]] = {True: "group", False: "none"}
"""Both programs' words for the former boolean: trl from 0.22, axolotl from 0.19."""


def _scales(found: Mapping[str, Json]) -> Mapping[str, Json]:
    said = found["trl.scale_rewards"]
    return {"scale_rewards": SCALES[said] if isinstance(said, bool) else said}


def _widths(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """The width of an engine on the training devices; a server gets its width when it starts."""
    width = found["vllm.tensor_parallel_size"]
    return {"vllm_tensor_parallel_size": width} if found.get("trl.vllm_mode") == "colocate" else {}


def renamed(key: str, other: str, source: str) -> Carry:
    """A key that the other program has, under another name or the same; no text is no value."""
    return carried(key, other, source, unset=(None, ""))


def _at_first(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """If Axolotl evaluates, it also does so before the first step."""
    has_data = found.get("val_set_size") or found.get("test_datasets")
    times, word = found.get("evals_per_epoch"), found.get("eval_strategy")
    is_often = bool(times) and _share(times, found) < 1
    is_asked = is_often or found.get("eval_steps") or word not in (None, "no")
    return {"eval_on_start": True} if has_data and is_asked else {}


def is_warmed_unasked(found: Mapping[str, Json]) -> bool:
    """Whether no key sets the length of the warm-up."""
    return found.get("warmup_steps") is None and found.get("warmup_ratio") is None


def _warms(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """Axolotl's default warm-up: 3 % of all steps, at most 100 steps, and two instead of one."""
    most = found.get("max_steps")
    if not is_warmed_unasked(found):
        return {}
    if not isinstance(most, int) or most <= 0:
        return {"warmup_steps": 0.03}
    steps = min(int(0.03 * most), 100)
    return {"warmup_steps": 2 if steps == 1 else steps}


def _unbounded(found: Mapping[str, Json]) -> str:
    """The note that the default warm-up, as a share of an unknown number of steps, has no limit."""
    if not is_warmed_unasked(found) or found.get("max_steps"):
        return ""
    return (
        "axolotl warms up over 3% of the steps by default, and over 100 at most: "
        "the limit is not carried over"
    )


def unsaid(found: Mapping[str, Json]) -> Mapping[str, Json]:
    """What Axolotl gives the Trainer without a key, or leaves at the model's default.

    axolotl 0.8.1 to 0.19.0 core/builders/base.py `_set_base_training_args`; 0.8.1 by transformers
    4.51's default. A model's config has no loss that balances experts unless `model_config` asks
    for it.
    """
    if found.get("rl"):
        return {}
    is_balanced = found.get("model_config.output_router_logits")
    experts = {} if is_balanced else {"router_aux_loss_coef": 0.0}
    return {"average_tokens_across_devices": False, **experts, **ANSWERS.does(found)}


ANSWERS: Final = answers_by(
    "train_on_inputs",
    False,
    True,
    "axolotl 0.8.1 to 0.19.0 prompt_strategies/chat_template.py `ChatTemplateStrategy`",
)


BOTH_HAVE: Final = (
    *((f"trl.{key}", key, TRL_SECTION, GRPO) for key in IN_BOTH),
    ("special_tokens.pad_token", "pad_token", CONFIG, SFT),
    ("special_tokens.eos_token", "eos_token", CONFIG, SFT),
    ("eval_sample_packing", "eval_packing", CONFIG, SFT),
    ("dataset_num_proc", "dataset_num_proc", CONFIG, SFT),
    (CENTRE, CENTRE, CONFIG, REWARD),
    ("wandb_name", "run_name", BUILDER, ARGUMENTS),
    ("revision_of_model", "model_revision", MODEL, "trl trainer/model_config.py"),
    (
        *("lora_target_parameters", "lora_target_parameters"),
        "axolotl 0.13.2 to 0.19.0 utils/schemas/peft.py",
        "trl 0.22.2 to 1.16.0 model_config.py",
    ),
)
"""Axolotl's key and TRL's with the same values, and where each of them is."""


CARRIES: Final = (
    Carry(
        ("micro_batch_size",),
        _warms,
        "axolotl 0.8.1 to 0.19.0 core/builders/base.py `_configure_warmup_and_logging`",
        beside=("max_steps", "warmup_steps", "warmup_ratio"),
        slots=("schedule.warmup_steps", "schedule.warmup_share"),
        apart=_unbounded,
    ),
    Carry(
        ("val_set_size", "test_datasets"),
        _at_first,
        f"{BUILDER} `_configure_save_and_eval_strategy`",
        beside=("evals_per_epoch", "eval_steps", "eval_strategy", "num_epochs"),
        since="0.13",
    ),
    Carry(
        ("datasets", "val_set_size"),
        _parts,
        f"{CONFIG}, utils/data/sft.py; {MIXTURE}",
        beside=("test_datasets",),
        slots=(*TRAINING_DATA, "data.evaluation"),
    ),
    Carry(
        ("saves_per_epoch", "save_steps", "save_strategy"),
        _saves,
        "axolotl 0.19.0 utils/config/__init__.py: 1.0 / (saves_per_epoch * num_epochs) below 1; "
        "core/builders/base.py `_configure_save_and_eval_strategy`",
        beside=("num_epochs",),
        slots=("schedule.save_steps",),
    ),
    *(
        Carry(
            ("evals_per_epoch", "eval_steps", "eval_strategy", "val_set_size"),
            partial(_evaluations, usual),
            "axolotl 0.8.1 core/trainer_builder.py; 0.13.2 to 0.19.0 utils/config/__init__.py, "
            "core/builders/base.py `_configure_save_and_eval_strategy`",
            beside=("num_epochs", "test_datasets"),
            slots=("schedule.evaluation_steps",),
            since=since,
        )
        for usual, since in (("epoch", "0"), ("no", "0.13"))
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
    renamed("dataset_processes", "dataset_num_proc", f"{CONFIG}; {SFT}"),
    *(renamed(key, other, f"{own}; {theirs}") for key, other, own, theirs in BOTH_HAVE),
    Carry(("trl.scale_rewards",), _scales, f"{TRL_SECTION}; {GRPO}"),
    renamed("trl.use_liger_loss", "use_liger_kernel", f"{TRL_SECTION}; {GRPO}"),
    Carry(
        ("vllm.tensor_parallel_size",),
        _widths,
        f"axolotl 0.13.2 to 0.19.0 utils/schemas/vllm.py; {GRPO}",
        beside=("trl.vllm_mode",),
    ),
    Carry(
        ("optim_args", *(f"optim_args.{name}" for name in _ARGUMENTS)),
        _arguments,
        f"{BUILDER} `_configure_optimizer`; transformers trainer_optimizer.py `_parse_optim_args`",
    ),
    renamed("noisy_embedding_alpha", "neftune_noise_alpha", f"{CONFIG} `map_fields`"),
    renamed("adam_eps", "adam_epsilon", f"{BUILDER}: the older name"),
)
