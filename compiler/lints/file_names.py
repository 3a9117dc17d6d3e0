"""What a file's name says of a few keys that several programs have."""

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, Final

from tunec.compiler.lints.kinds import known_keys
from tunec.compiler.target import File, Target

_NAMES: Final = (
    (
        re.compile(r"train(er|ing)?[_-]?(arg|config)|^hf(\b|[_-])|^(args|train|trainer)$"),
        ("huggingface", "training_args.yaml"),
    ),
    (re.compile(r"model_?(arg|load)"), ("huggingface", "model_args.yaml")),
    (re.compile(r"adapter_config|^peft|lora_config"), ("huggingface", "adapter_config.json")),
    (re.compile(r"accelerate"), ("accelerate", "accelerate.yaml")),
    (re.compile(r"axolotl"), ("axolotl", "axolotl.yaml")),
    (re.compile(r"llama_?-?factory"), ("llamafactory", "llamafactory.yaml")),
    (re.compile(r"simple_?-?tuner"), ("simpletuner", "config/config.json")),
    (re.compile(r"^(trl|sft)\b"), ("trl", "sft.yaml")),
    (re.compile(r"^dpo\b"), ("trl", "dpo.yaml")),
    (re.compile(r"^grpo\b"), ("trl", "grpo.yaml")),
)
"""By the names that makers and users give such files."""
_OUTRIGHT: Final = re.compile(r"train(er|ing)[_-]?arg|^hf(\b|[_-])")
"""Names that no other program's file has: half of the keys need to be known then."""


def by_name(
    name: str, files: Iterable[tuple[Target, File]], document: Any
) -> tuple[Target, File] | None:
    """The file that the name speaks of, if it knows the keys; content decides otherwise."""
    stem = PurePath(name).stem.lower()
    wanted = next((found for pattern, found in _NAMES if pattern.search(stem)), None)
    if wanted is None or not isinstance(document, dict) or not document:
        return None
    keys = set(document)
    least = len(keys) / 2 if _OUTRIGHT.search(stem) else len(keys)
    return next(
        (
            (target, file)
            for target, file in files
            if (target.name, file.name) == wanted and len(keys & known_keys(target, file)) >= least
        ),
        None,
    )
