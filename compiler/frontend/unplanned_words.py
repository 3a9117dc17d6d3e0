"""Common names of methods and objectives that a spec does not have, and what to write instead."""

from collections.abc import Mapping
from typing import Final

from tunec.schemas.objective_facts import OBJECTIVES
from tunec.schemas.source import Path

_STARTS: Final = (
    (
        "it only gives LoRA other initial values, so that memory and time are those of lora, and "
        "the trainer gets it by a key that is passed through"
    ),
    "write `method: lora` and `extra: {{axolotl: {{peft_init_lora_weights: {word}}}}}`",
)
_OWN_KIND: Final = (
    "it is no LoRA: no account is kept of what it trains, and no target writes it",
    "write `method: lora`, or plan without it and start a script of your own",
)

UNPLANNED: Final[Mapping[str, tuple[str, str]]] = {
    "dora": ("it is LoRA with a magnitude beside it", "write `method: {{lora: {{dora: true}}}}`"),
    "rslora": ("it is LoRA with another scale", "write `method: {{lora: {{rslora: true}}}}`"),
    "pissa": (
        _STARTS[0],
        (
            "write `method: lora` and `extra: {{llamafactory: {{pissa_init: true}}}}`, or "
            "`{{axolotl: {{peft_init_lora_weights: pissa}}}}`"
        ),
    ),
    **dict.fromkeys(("olora", "eva", "gaussian"), _STARTS),
    "loftq": (
        (
            "it starts LoRA from what packing the base lost, and packs it itself: a spec packs it "
            "by qlora, from plain values"
        ),
        (
            "write `method: qlora`, or `method: lora` with `extra: {{axolotl: "
            "{{peft_init_lora_weights: loftq}}}}`"
        ),
    ),
    "loraplus": (
        "it is LoRA with two learning rates: memory and time are those of lora",
        (
            "write `method: lora` and `extra: {{llamafactory: {{loraplus_lr_ratio: 16}}}}`, or the "
            "same for axolotl"
        ),
    ),
    **dict.fromkeys(
        (
            *("oft", "oftv2", "boft", "ia3", "vera", "lokr", "loha", "adalora", "hra", "fourierft"),
            *("prompt_tuning", "prefix_tuning", "p_tuning", "prompt", "prefix", "ptuning"),
            *("galore", "badam", "lisa", "apollo", "bitfit", "adapter", "xlora", "randlora"),
        ),
        _OWN_KIND,
    ),
    **dict.fromkeys(
        OBJECTIVES,
        (
            "a method says which weights train; what they learn from is the objective",
            "write `method: lora` and `objective: {word}`",
        ),
    ),
    **dict.fromkeys(
        ("orpo", "kto", "simpo", "cpo", "rloo", "pretrain", "cpt", "pt"),
        (
            "a method says which weights train; what they learn from is the objective",
            "write `objective: sft`, `dpo`, `grpo`, `ppo` or `reward`: those can be planned",
        ),
    ),
    "rm": (
        "a method says which weights train; what they learn from is the objective",
        "write `method: lora` and `objective: reward`",
    ),
}
"""By the word, in lower case: why no method is called so, and what to write. peft 0.10.0 to 0.21.2
utils/peft_types.py `PeftType`, tuners/lora/config.py `init_lora_weights`, optimizers/loraplus.py;
llamafactory 0.9.3 to 0.9.5 hparams/finetuning_args.py, axolotl 0.13.2 to 0.19.0
utils/schemas/peft.py `LoraConfig`."""


_NO_ACCOUNT: Final = "no account is kept of it, and no target writes it"
UNPLANNED_OBJECTIVES: Final[Mapping[str, tuple[str, str]]] = {
    "kto": (
        f"it learns from single answers, good or bad: {_NO_ACCOUNT}",
        "write `objective: dpo` for pairs of answers, or plan without it and start your own script",
    ),
    **dict.fromkeys(
        ("orpo", "simpo", "cpo"),
        (
            f"it learns from pairs without a reference model: {_NO_ACCOUNT}",
            "write `objective: dpo`, or plan without it and start your own script",
        ),
    ),
    **dict.fromkeys(
        ("rloo", "gspo", "remax", "reinforce_plus_plus", "online_dpo"),
        (
            f"it is another way to learn from rewarded answers than grpo and ppo: {_NO_ACCOUNT}",
            "write `objective: {{grpo: {{rewards: [...]}}}}`, `ppo`, or start your own script",
        ),
    ),
    **dict.fromkeys(
        ("dapo", "dr_grpo", "bnpo"),
        ("it is a loss of grpo", "write `objective: {{grpo: {{loss: {word}, rewards: [...]}}}}`"),
    ),
    **dict.fromkeys(
        ("ipo", "hinge", "apo_zero", "apo_down"),
        ("it is a loss of dpo", "write `objective: {{dpo: {{loss: {word}}}}}`"),
    ),
    **dict.fromkeys(
        ("pretrain", "pretraining", "cpt", "pt", "clm"),
        (
            "texts are trained on by sft",
            "write `objective: sft` and `format: text` under `data`",
        ),
    ),
    **dict.fromkeys(
        ("rm", "reward_model", "reward_modeling"),
        ("a reward model is trained by reward", "write `objective: reward`"),
    ),
    **dict.fromkeys(
        ("gkd", "distillation", "distill", "prm"),
        (_NO_ACCOUNT, "plan without it, and start your own script"),
    ),
}
"""By the word, in lower case: why no objective is called so, and what to write. trl 1.16.0
`trl/trainer` and `trl/experimental`; ms-swift 4.6.0 `rlhf_type`; verl 0.9.1 `adv_estimator`."""
_BY_FIELD: Final[Mapping[Path, Mapping[str, tuple[str, str]]]] = {
    ("method",): UNPLANNED,
    ("objective",): UNPLANNED_OBJECTIVES,
}


def unplanned(word: str, path: Path = ("method",)) -> tuple[str, str] | None:
    """Why a field has no value of this name, and what to write; None for an unknown word."""
    spelled = word.lower().replace("-", "_").replace("+", "plus").strip()
    found = _BY_FIELD.get(path, {}).get(spelled)
    return None if found is None else (found[0], found[1].format(word=spelled))
