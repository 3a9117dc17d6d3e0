"""TRL's methods: the method that a file is for, and the defaults of the method's config."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, fixed, in_no_plan
from tunec.schemas.frozen import replace
from tunec.schemas.terms import ObjectiveKind
from tunec.targets.huggingface.arithmetic import CHECKPOINTING, PRECISION
from tunec.targets.huggingface.packages import TRL

Method = ObjectiveKind
METHODS: Final[tuple[Method, ...]] = ("sft", "dpo", "grpo", "reward")
"""The objectives that TRL has a script for: trl 1.16.0 scripts; none trains a critic."""

_SFT: Final = frozenset(
    {
        *("packing", "eval_packing", "packing_strategy", "max_seq_length", "dataset_text_field"),
        *("assistant_only_loss", "completion_only_loss", "chat_template_path", "dataset_kwargs"),
        *("chars_per_token", "num_of_sequences"),
    }
)
_DPO: Final = frozenset(
    {
        *("base_model_attribute_name", "discopop_tau", "f_alpha_divergence_coef", "rpo_alpha"),
        *("f_divergence_type", "force_use_ref_model", "generate_during_eval", "ld_alpha"),
        *("loss_weights", "max_target_length", "model_adapter_name", "precompute_ref_batch_size"),
        *("precompute_ref_log_probs", "ref_adapter_name", "ref_model_init_kwargs"),
        *("reference_free", "use_logits_to_keep", "use_weighting"),
    }
)
_GRPO: Final = frozenset(
    {
        *("epsilon_high", "generation_batch_size", "importance_sampling_level", "log_completions"),
        *("mask_truncated_completions", "num_completions_to_print", "num_generations"),
        *("num_generations_eval", "num_iterations", "off_policy_mask_threshold", "reward_funcs"),
        *("reward_model_name_or_path", "reward_weights", "scale_rewards", "steps_per_generation"),
        *("top_entropy_quantile", "use_vllm", "vllm_gpu_memory_utilization", "vllm_mode"),
        *("vllm_server_host", "vllm_tensor_parallel_size"),
    }
)
"""Keys of GRPO's script alone: trl 0.8.6 to 1.16.0 `SFTConfig`, `DPOConfig`, `GRPOConfig` and the
ScriptArguments beside them; the schemas below schemas/json/trl contain them."""
_PREFERENCE: Final = frozenset(
    {
        *("beta", "sync_ref_model", "max_prompt_length"),
        *("ref_model_mixup_alpha", "ref_model_sync_steps"),
    }
)
"""Keys that DPO and GRPO share; without a key of GRPO the file is for DPO."""
_OF_PAIRS: Final = frozenset(
    {
        *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard"),
        *("aot", "aot_pair", "aot_unpaired", "apo_zero", "apo_down", "discopop", "sigmoid_norm"),
    }
)
"""Values of `loss_type` that only DPO accepts of the three: trl 1.16.0 trainer/dpo_trainer.py."""
_TUNERS: Final = frozenset({"stage", "finetuning_type"})
_OTHERS: Final = frozenset(
    {
        *("desirable_weight", "undesirable_weight", "cpo_alpha", "simpo_gamma", "teacher_model"),
        *("teacher_model_name_or_path", *_TUNERS),
    }
)
"""Keys of other methods (`KTOConfig`, `CPOConfig`, `GKDConfig`), and of other programs' files that
name a model by the same key."""


_TRAINING: Final = frozenset(
    {
        *("output_dir", "per_device_train_batch_size", "gradient_accumulation_steps"),
        *("learning_rate", "num_train_epochs", "max_steps", "lr_scheduler_type", "optim"),
        *("bf16", "fp16", "tf32", "gradient_checkpointing", "deepspeed", "fsdp"),
        *("save_strategy", "save_steps", "eval_strategy", "evaluation_strategy", "eval_steps"),
    }
)
"""Fields of TrainingArguments that no model class has: trl 0.27.0 to 1.16.0 trainer/model_config.py
`ModelConfig`."""


def method_of(document: Json) -> Method | None:
    """The method of a TRL script's file; None if the document is no such file.

    A file without the keys of a method is for SFT, if it has a setting of training.
    """
    if not isinstance(document, dict) or "model_name_or_path" not in document:
        return None
    names = {name for name in document if isinstance(name, str)}
    if names & _GRPO:
        return "grpo"
    if _is_of_rewards(document):
        return "reward"
    losses = document.get("loss_type")
    is_paired = _OF_PAIRS & {
        each for each in (losses if isinstance(losses, list) else [losses]) if isinstance(each, str)
    }
    is_preference = bool(names & _PREFERENCE or is_paired)
    if names & _DPO or (is_preference and not names & (_SFT | _OTHERS)):
        return "dpo"
    return "sft" if names & (_SFT | _TRAINING) else None


def _is_of_rewards(document: Mapping[str, Json]) -> bool:
    """Whether a reward model is trained: of the four scripts one alone loads a classifier.

    trl 0.8.6 to 1.16.0 trainer/reward_config.py, and from 0.24 on scripts/reward.py.
    """
    is_other = not _TUNERS.isdisjoint(document)
    is_scored = document.get("lora_task_type") == "SEQ_CLS"
    return not is_other and (is_scored or "center_rewards_coefficient" in document)


_SOURCE: Final = "trl 0.9.6 to 1.16.0 trainer/sft_config.py, dpo_config.py, grpo_config.py, from "
_SOURCE_BASE: Final = f"{_SOURCE}0.29 trainer/base_config.py"
_BF16: Final = f"{_SOURCE_BASE}: `bf16` is on from 0.19 unless `fp16` is"
_RECOMPUTES: Final = f"{_SOURCE_BASE}: `gradient_checkpointing` is on from 0.22"
_MODE: Final = "activation_checkpointing.mode"


def _with_bf16(entry: Entry) -> Entry:
    """The row of `bf16` and `fp16` from 0.19 on, where bf16 is on by default unless fp16 is on."""

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        if found.get("bf16") is not None or found.get("fp16") not in (None, False):
            return entry.read(found)
        return entry.read({**found, "bf16": True})

    slots = read({})
    absent = {slot: slots[slot] for slot in entry.slots}
    return replace(
        entry, read=read, since="0.19", absent=((ALWAYS, absent),), package=TRL, source=_BF16
    )


_FLAGS: Final = tuple(each for each in PRECISION if "bf16" in each.keys)

TRL_PRECISION: Final = (
    *(replace(each, until="0.19", package=TRL) for each in _FLAGS),
    *map(_with_bf16, _FLAGS),
    *(each for each in PRECISION if each not in _FLAGS),
)
TRL_CHECKPOINTING: Final = (
    *(
        replace(each, absent=()) if _MODE in each.slots and each.absent else each
        for each in CHECKPOINTING
    ),
    Entry(
        ("gradient_checkpointing", "activation_checkpointing"),
        (_MODE,),
        lambda _: {},
        lambda _: {},
        _RECOMPUTES,
        absent=((ALWAYS, {_MODE: "none"}), ("0.22", {_MODE: "layer"})),
        when=in_no_plan,
        package=TRL,
    ),
)
"""The last row only gives the default: the other rows go by releases of transformers, not TRL."""


def moving_activations(since: str, source: str) -> tuple[Entry, Entry]:
    """The rows for offloading activations to host RAM; releases before `since` cannot do it."""
    key, slot = "activation_offloading", "activation_checkpointing.offload"

    def write(plan: Plan) -> Mapping[str, Any]:
        return {key: True} if plan.activation_checkpointing.offload else {}

    never = fixed(slot, value=False, source=source, until=since, package=TRL)
    return never, Entry(
        (key,),
        (slot,),
        write,
        lambda found: {slot: found[key] is True},
        source,
        since,
        absent=((ALWAYS, {slot: False}),),
        package=TRL,
    )
