"""The configuration classes that a file or a command line may describe, by their public names."""

import importlib
from collections.abc import Mapping
from typing import Any, Final

_HOMES: Final[Mapping[str, str]] = {
    "TrainingArguments": "transformers",
    "Seq2SeqTrainingArguments": "transformers",
    "BitsAndBytesConfig": "transformers",
    "LoraConfig": "peft",
    "SFTConfig": "trl",
    "DPOConfig": "trl",
    "GRPOConfig": "trl",
    "KTOConfig": "trl",
    "RewardConfig": "trl",
    "RLOOConfig": "trl",
    "GKDConfig": "trl",
    "PPOConfig": "trl",
}
_APART: Final[Mapping[str, str]] = {
    "GKDConfig": "trl.experimental.gkd",
    "PPOConfig": "trl.experimental.ppo",
}
"""Modules to which classes moved: in trl 0.27 to 0.29 from trainer to experimental, where PPO
stayed until 1.15."""


def home(name: str) -> str:
    """The distribution that defines a class."""
    return _HOMES[name]


def version(name: str) -> str:
    """The installed release of a class's distribution."""
    return str(importlib.import_module(home(name)).__version__)


def find(name: str) -> Any:
    """The class of a name; None if the installed release has no importable class of that name."""
    for module in (home(name), *([_APART[name]] if name in _APART else ())):
        try:
            found = getattr(importlib.import_module(module), name, None)
        except (ImportError, RuntimeError):
            continue  # trl 0.8 to 0.11: PPOConfig wants tyro, which TRL does not install
        if found is not None:
            return found
    return None
