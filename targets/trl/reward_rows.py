"""Rows of the file for `trl reward`: a classifier of one label, trained on pairs of answers."""

from typing import Final

from tunec.compiler.target import ALWAYS, Entry, constant, fixed
from tunec.schemas.frozen import replace
from tunec.targets.chat_template import template_row
from tunec.targets.huggingface.methods import moving_activations
from tunec.targets.huggingface.model import WIDENING
from tunec.targets.huggingface.packages import TRL
from tunec.targets.trl.model_loading import by_arguments, by_keys
from tunec.targets.trl.rows import (
    DROPOUT,
    SHARED,
    loads,
    nothing_packed,
    only_for,
    rate_of,
    trl_key,
)

_REWARD: Final = "trl 0.24.0 to 1.16.0 trainer/reward_config.py `RewardConfig`"
_TRAINER: Final = "trl 0.24.0 to 1.16.0 trainer/reward_trainer.py `RewardTrainer`"
_SCRIPT: Final = "0.24"
"""The first release with scripts/reward.py."""
_BY_KEYS: Final = "1.5"
"""The first release whose script reads the keys of ModelConfig for loading."""

_NAME: Final = "model_name_or_path"
_CENTRE: Final = "center_rewards_coefficient"
"""Weight of the rewards' distance from zero; it also tells the file from those of other scripts."""


def _own(entry: Entry) -> Entry:
    """A shared row as reward models have it.

    PEFT adds the head to what adapters are saved with (peft 0.10.0 to 0.21.2 peft_model.py
    `PeftModelForSequenceClassification.__init__`), so that an absent key does not mean: nothing.
    """
    if entry.keys == ("lora_dropout",):
        return DROPOUT
    return replace(entry, absent=()) if entry.keys == ("lora_modules_to_save",) else entry


_ROWS: Final = tuple(map(_own, SHARED))

REWARD_ENTRIES: Final = (
    *(each for each in _ROWS if not loads(each)),
    *by_keys((each for each in _ROWS if loads(each)), _BY_KEYS),
    *by_arguments(
        "trl 0.24.0 to 1.4.0 scripts/reward.py passes a name, which trainer/reward_trainer.py "
        "`__init__` loads by model_init_kwargs",
        _SCRIPT,
        _BY_KEYS,
    ),
    *WIDENING,
    rate_of(_REWARD, ((ALWAYS, 1e-4),)),
    trl_key(
        "max_length",
        "data.sequence",
        f"{_REWARD}: pairs of which one is longer are left out",
        ((ALWAYS, 1024),),
    ),
    nothing_packed(_REWARD),
    *only_for("reward", _SCRIPT, "trl before 0.24 has no scripts/reward.py"),
    Entry(
        (_NAME,),
        ("model.kind",),
        lambda plan: {_NAME: plan.model.path},
        lambda _: {"model.kind": "sequence-classifier"},
        f"{_TRAINER}: num_labels=1, whatever head the model has",
        package=TRL,
    ),
    fixed("objective.loss", "sigmoid", f"{_TRAINER}.compute_loss", package=TRL),
    fixed("loss.path", "full", f"{_TRAINER}: the head gives one number", package=TRL),
    replace(constant(_CENTRE, None, _REWARD, package=TRL), yields=True),
    template_row("chat_template_path", "trl", _REWARD, since=_SCRIPT, package=TRL),
    *moving_activations(_SCRIPT, f"{_REWARD}: `activation_offloading`"),
)
