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
}


def home(name: str) -> str:
    """The distribution that a class comes from."""
    return _HOMES[name]


def version(name: str) -> str:
    """The release that is installed of the class's distribution."""
    return str(importlib.import_module(home(name)).__version__)


def find(name: str) -> Any:
    """The class, or None where the installed release has none of that name."""
    return getattr(importlib.import_module(home(name)), name, None)
