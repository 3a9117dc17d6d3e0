"""The configuration classes that a file or a command line may stand for, by their public names."""

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
}
_APART: Final[Mapping[str, str]] = {"GKDConfig": "trl.experimental.gkd"}
"""Where a class went: trl 0.29 trainer to experimental."""


def home(name: str) -> str:
    """The distribution that a class comes from."""
    return _HOMES[name]


def version(name: str) -> str:
    """The release that is installed of the class's distribution."""
    return str(importlib.import_module(home(name)).__version__)


def find(name: str) -> Any:
    """The class, or None where the installed release has none of that name."""
    found = getattr(importlib.import_module(home(name)), name, None)
    if found is not None or name not in _APART:
        return found
    try:
        return getattr(importlib.import_module(_APART[name]), name, None)
    except ImportError:
        return None
