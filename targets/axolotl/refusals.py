"""Plans that Axolotl does not run, or runs differently."""

from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.targets.axolotl.model import FP8
from tunec.targets.axolotl.packages import WRITTEN
from tunec.targets.rows import (
    has_adapter,
    is_quantised,
    is_rewarded,
    is_supervised,
    scores_texts,
    splits_groups,
)
from tunec.targets.scripts.refusals import Refusal, seen_by_own_classes
from tunec.targets.scripts.trl_rewards import OWN_REWARDS

_LOADER: Final = "axolotl 0.13.2 to 0.19.0 loaders/model.py"


def _is_alone(plan: Plan) -> bool:
    """Whether no engine shards the model: one process, or DDP."""
    return plan.parallel.engine in ("none", "ddp")


def _widens(plan: Plan) -> bool:
    eager = plan.attention.implementation in ("sdpa", "eager")
    narrow = plan.precision.compute != "fp32"
    return eager and narrow and _is_alone(plan) and not has_adapter(plan)


def _scales_fp16(plan: Plan) -> bool:
    is_fp16 = plan.precision.compute == "fp16" and plan.parallel.engine != "deepspeed"
    return is_fp16 and not has_adapter(plan)


def _is_imported(name: str) -> bool:
    return name in OWN_REWARDS or ("." in name and all(map(str.isidentifier, name.split("."))))


def _has_a_second_copy(plan: Plan) -> bool:
    """Whether Axolotl loads the model twice: in full GRPO, though the trainer does not get it."""
    return is_rewarded(plan) and not has_adapter(plan)


def _loads_more_than_fits(plan: Plan) -> bool:
    """Whether two 16-bit copies beside vLLM's share exceed a device before training begins."""
    is_whole = plan.parallel.engine != "fsdp" and plan.zero.stage < 3
    share = plan.generation.device_share * plan.devices.memory
    return (
        _has_a_second_copy(plan)
        and is_whole
        and 4 * plan.model.parameters + share > plan.devices.budget
    )


def _lacks_whole_groups(plan: Plan) -> bool:
    least = plan.generation.samples * plan.parallel.world
    return is_rewarded(plan) and plan.batch.global_ < least


_HEAD: Final = "axolotl 0.17.0 to 0.19.0 loaders/model.py `_reinitialize_classification_head`"
_FILLS: Final = "0.17"
"""The first release that fills the head of a reward model itself."""
_GRPO: Final = "trl 0.27.0 to 1.9.0 trainer/grpo_trainer.py"
_SECOND: Final = "axolotl 0.13.2 to 0.19.0 train.py `setup_reference_model`"

REFUSALS: Final = (
    seen_by_own_classes(
        "axolotl 0.13.2 to 0.19.0 loaders/model.py: AutoModelForImageTextToText of transformers"
    ),
    Refusal(
        ("model.family",),
        "files are written for axolotl 0.13 and later; earlier ones are only read",
        lambda _: True,
        "axolotl 0.13.2 utils/schemas",
        "request axolotl@0.13 or later",
        until=WRITTEN,
    ),
    Refusal(
        ("model.published",),
        f"its files expand weights that are published in FP8 from {FP8} on",
        lambda plan: plan.model.published == "fp8",
        "axolotl 0.13.2 to 0.16.1 utils/schemas/model.py `ModelInputConfig`: MXFP4 alone",
        f"request axolotl@{FP8} or later, or train a copy in 16 bits",
        until=FP8,
    ),
    Refusal(
        ("attention.implementation", "parallel.engine", "adapter.kind"),
        "embeddings, output layer and norms become fp32 beside this attention, which the account "
        "does not hold",
        _widens,
        f"{_LOADER} `_configure_embedding_dtypes`",
        "set `attention: flash_attention_2`, or an engine",
    ),
    Refusal(
        ("precision.compute", "adapter.kind"),
        "it trains fp16 parameters, whose gradients GradScaler does not unscale",
        _scales_fp16,
        "axolotl 0.13.2 to 0.19.0 utils/config/__init__.py `resolve_dtype`; torch "
        "amp/grad_scaler.py `_unscale_grads_`",
        "compute in bf16 or fp32, train adapters, or use `engine: deepspeed`",
    ),
    Refusal(
        ("data.packing", "objective.kind"),
        "it does not pack pairs",
        lambda plan: plan.data.packing and plan.objective.kind == "dpo",
        "axolotl 0.13.2 to 0.19.0 utils/schemas/validation.py `check_sample_packing_w_rl`",
        "set data.packing to false",
    ),
    Refusal(
        ("data.packing", "model.kind"),
        "it does not pack samples with images",
        lambda plan: plan.data.packing and plan.data.images > 0,
        "axolotl 0.13.2 to 0.19.0 utils/schemas/validation.py `check_mm_prepare`",
        "set data.packing to false",
    ),
    Refusal(
        ("objective.kind", "model.kind"),
        "its trainer of pairs takes no images here",
        lambda plan: plan.objective.kind == "dpo" and plan.data.images > 0,
        "axolotl 0.13.2 to 0.19.0 prompt_strategies/dpo/chat_template.py",
        "train towards texts, or compile to trl",
    ),
    Refusal(
        ("adapter.frozen", "activation_checkpointing.reentrant"),
        "it refuses reentrant recomputation of a model that is partly frozen",
        lambda plan: (
            bool(plan.adapter.frozen)
            and plan.activation_checkpointing.mode == "layer"
            and plan.activation_checkpointing.reentrant
        ),
        "axolotl 0.13.2 to 0.19.0 utils/schemas/validation.py `check_use_reentrant_mismatch`",
        "pin activation_checkpointing.reentrant to false, or zero.stage below 3",
    ),
    Refusal(
        ("zero.stage", "objective.kind"),
        "it looks at the numbers of the head that scores, of which ZeRO-3 leaves none in place",
        lambda plan: scores_texts(plan) and plan.zero.stage == 3,
        f"{_HEAD}: max() of no numbers ends the run",
        "pin zero.stage to 2, or set `engine: fsdp`",
        since=_FILLS,
    ),
    Refusal(
        ("parallel.tensor",),
        "it splits layers by DTensor, which the account does not hold",
        lambda plan: plan.parallel.tensor > 1,
        f"{_LOADER} `_build_model`: tp_plan",
        "pin parallel.tensor to 1",
    ),
    Refusal(
        ("parallel.sequence",),
        "it shares sequences by ring attention, which the account does not hold",
        lambda plan: plan.parallel.sequence > 1,
        "axolotl 0.13.2 to 0.19.0 monkeypatch/ring_attn",
        "pin parallel.sequence to 1",
    ),
    Refusal(
        ("fsdp.version",),
        "files are written for version 2 of FSDP; axolotl deprecates the first",
        lambda plan: plan.fsdp.version == 1,
        "axolotl 0.13.2 to 0.19.0 utils/schemas/validation.py `check_fsdp_version`",
        "pin fsdp.version to 2",
    ),
    Refusal(
        ("fsdp.version", "quantization.format"),
        "it refuses a quantised base under FSDP 2 in training on pairs",
        lambda plan: is_quantised(plan) and plan.fsdp.version == 2 and plan.objective.kind == "dpo",
        "axolotl 0.13.2 to 0.19.0 utils/schemas/validation.py `check_fsdp2_base_model_quant_rl`",
        "use `engine: deepspeed`",
    ),
    Refusal(
        ("schedule.warmup_steps",),
        "it makes two steps of a single step of warm-up",
        lambda plan: plan.schedule.warmup_share is None and plan.schedule.warmup_steps == 1,
        "axolotl 0.13.2 to 0.19.0 core/builders/base.py `_configure_warmup_and_logging`",
        "request no warm-up, or two steps",
    ),
    Refusal(
        ("objective.rewards",),
        "it takes each reward by its import path",
        lambda plan: is_rewarded(plan) and not all(map(_is_imported, plan.objective.rewards)),
        "axolotl 0.13.2 to 0.19.0 core/trainers/grpo/__init__.py `get_reward_func`",
        "write `module.function`, whose module lies beside the spec or is installed",
    ),
    Refusal(
        ("batch.global", "generation.samples"),
        "each process needs a whole group of answers in a step",
        _lacks_whole_groups,
        "axolotl 0.17.0 to 0.19.0 utils/schemas/validation.py `check_grpo_batch_size_divisibility`",
        "raise batch.global to at least the number of devices times the answers to a prompt",
        since="0.17",
    ),
    Refusal(
        ("batch.evaluation", "generation.samples"),
        "an evaluation batch over all devices splits a group of answers",
        splits_groups,
        "trl 0.27.0 to 1.9.0 trainer/grpo_config.py `GRPOConfig.__post_init__`",
        "pin batch.evaluation so that it holds whole groups, or leave data.evaluation out",
    ),
    Refusal(
        ("objective.reference", "parallel.engine"),
        "the reference is loaded in fp32 where DeepSpeed does not narrow it, which the account "
        "does not hold",
        lambda plan: (
            is_rewarded(plan)
            and plan.objective.reference == "resident"
            and plan.parallel.engine != "deepspeed"
        ),
        f"{_GRPO} `create_model_from_path`: it gets no dtype",
        "set `engine: deepspeed`, train adapters, or leave beta at 0",
    ),
    Refusal(
        ("parallel.engine", "adapter.kind"),
        "the first process of each node loads the model a second time on the host, which the "
        "account does not hold",
        lambda plan: _has_a_second_copy(plan) and plan.parallel.engine == "fsdp",
        _SECOND,
        "set `engine: deepspeed`, or train adapters",
    ),
    Refusal(
        ("model.parameters", "zero.stage"),
        "it loads the model a second time before it trains, for which a device has no room",
        _loads_more_than_fits,
        f"{_SECOND}: the copy goes when the trainer is built",
        "pin zero.stage to 3, or train adapters",
    ),
    Refusal(
        ("activation_checkpointing.reentrant", "quantization.format"),
        "of several processes it refuses reentrant recomputation over a base in 4 bits",
        lambda plan: (
            not is_supervised(plan)
            and plan.parallel.world > 1
            and plan.quantization.format in ("nf4", "fp4")
            and plan.activation_checkpointing.mode == "layer"
            and plan.activation_checkpointing.reentrant
        ),
        "axolotl 0.13.2 to 0.19.0 utils/schemas/validation.py "
        "`check_rl_config_gradient_checkpointing`",
        "pin zero.stage below 3",
    ),
)
