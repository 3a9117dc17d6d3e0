"""Plans that TRL's trainers do not run, or run differently."""

from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.targets.rows import is_rewarded, splits_groups
from tunec.targets.scripts.refusals import Refusal, seen_by_own_classes
from tunec.targets.scripts.trl_rewards import OWN_REWARDS


def _precomputes(plan: Plan) -> bool:
    return plan.objective.reference == "precomputed"


_OWN_REWARDS: Final = (*OWN_REWARDS, "get_soft_overlong_punishment")


def _rewards_by_nobody(plan: Plan) -> bool:
    names = plan.objective.rewards if is_rewarded(plan) else ()
    return any(":" in each or ("." not in each and each not in _OWN_REWARDS) for each in names)


REFUSALS: Final = (
    Refusal(
        ("data.loss_on",),
        "before 0.19 every token of a conversation bears the loss",
        lambda plan: plan.data.loss_on == "answers",
        "trl 0.17.0 and 0.18.2 trainer/sft_config.py have no `assistant_only_loss`",
        "set `software: {trl: 1.16.0}`",
        until="0.19",
    ),
    Refusal(
        ("data.loss_on", "data.images"),
        "it finds no answers in samples with images before 1.15",
        lambda plan: plan.data.loss_on == "answers" and plan.data.images > 0,
        "trl 0.22.2 to 1.14.0 trainer/sft_trainer.py `SFTTrainer.__init__`; 1.15.0 finds them",
        "set `software: {trl: 1.16.0}`",
        until="1.15",
    ),
    seen_by_own_classes(
        "trl 0.19.1 to 1.16.0 trainer/sft_trainer.py `DataCollatorForVisionLanguageModeling`"
    ),
    Refusal(
        ("objective.kind", "model.kind"),
        "`trl dpo` loads every model by AutoModelForCausalLM before 1.6",
        lambda plan: plan.model.kind == "vision-language" and plan.objective.kind == "dpo",
        "trl 0.22.2 to 1.3.0 scripts/dpo.py `main`; 0.9.6 to 0.28.0 trainer/dpo_trainer.py: images "
        "of every sample of such a model",
        "set `software: {trl: 1.16.0}`",
        until="1.6",
    ),
    Refusal(
        ("objective.kind", "model.kind"),
        "it prompts a model that sees from 0.22 on",
        lambda plan: plan.model.kind == "vision-language" and plan.objective.kind == "grpo",
        "trl 0.22.2 trainer/grpo_trainer.py `GRPOTrainer`: ProcessorMixin, which 0.19.1 lacks",
        "set `software: {trl: 1.16.0}`",
        until="0.22",
    ),
    Refusal(
        ("objective.rewards",),
        "a reward is one of TRL's own, or a function by its dotted import path",
        _rewards_by_nobody,
        "trl 0.18.2 to 1.16.0 scripts/grpo.py `reward_funcs_registry`, `main`",
        "write `package.module.function`, or accuracy_reward or think_format_reward",
    ),
    Refusal(
        ("batch.evaluation", "generation.samples"),
        "an evaluation batch over all devices splits a group of answers",
        splits_groups,
        "trl 0.27.2 to 1.16.0 trainer/grpo_config.py `GRPOConfig.__post_init__`; "
        "num_generations_eval is num_generations where it is not given",
        "pin batch.evaluation so that it holds whole groups, or leave data.evaluation out",
        since="0.27",
    ),
    Refusal(
        ("objective.reference", "parallel.engine"),
        "values of the reference are computed before DeepSpeed has the model",
        lambda plan: _precomputes(plan) and plan.parallel.engine == "deepspeed",
        "trl 0.9.6 to 1.8.0 trainer/dpo_trainer.py: a model on the CPU or in shards; huggingface/"
        "trl#6403; 1.9.2 has an engine for it",
        "use trl 1.9 or later, another engine, or a resident reference",
        until="1.9",
    ),
    Refusal(
        ("objective.reference", "adapter.kind"),
        "the second model stays on the devices, though its values are computed before",
        lambda plan: _precomputes(plan) and plan.adapter.kind == "none",
        "trl 0.29.1 to 1.1.0 trainer/dpo_trainer.py `__init__`; huggingface/trl#5542",
        "use trl 1.2 or later, or a resident reference",
        since="0.29",
        until="1.2",
    ),
)
