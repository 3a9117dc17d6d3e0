"""llama-cookbook's own configuration classes, and how it processes flags.

Runs inside an environment that holds the release. Verbs: `schema`, `resolve`.
"""

import importlib.util
import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib import import_module, metadata
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.targets.scripts.facts import closed, fields

_QUANTIZATION: Final = "quantization_config"
_CLASSES: Final = (
    ("training", "train_config"),
    ("fsdp", "fsdp_config"),
    ("peft", "lora_config"),
    ("quantization", _QUANTIZATION),
    ("datasets", "custom_dataset"),
)
# `lora_config` is annotated with a list, not checked, and handed on to a class that takes both:
# peft tuners/lora/config.py `LoraConfig.target_modules`.
_NAMES: Final = {"type": ["array", "string"]}

_BITSANDBYTES: Final = "0.48.0"


def schema(_: Mapping[str, Any]) -> dict[str, Any]:
    """The flags: those of `train_config` bare, the others under the name of their class."""
    found = {name: fields(_text(module), name) for module, name in _CLASSES}
    found["lora_config"]["target_modules"] |= _NAMES
    bare = found.pop("train_config")
    blocks = {
        name: {"type": "object", "properties": keys, "additionalProperties": False}
        for name, keys in found.items()
    }
    consumer = f"llama-cookbook=={version('llama-cookbook')}"
    return closed("flags of llama_cookbook.finetuning", consumer, {**bare, **blocks})


def _text(module: str) -> str:
    found = importlib.util.find_spec("llama_cookbook")
    folder = Path(next(iter(found.submodule_search_locations or ()))) if found else Path()
    return (folder / "configs" / f"{module}.py").read_text(encoding="utf-8")


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """Parse a command line with fire and merge it into the configurations, as `main` does.

    In: `argv`. Out: `version`; `refused` (None, or stage, type and message); `train`, `fsdp`,
    `peft`, `quantization` (the config for transformers), `storage` (quantization_config) and
    `data`, resolved; `said`, the printed text, which reports unknown keys.
    """
    answer: dict[str, Any] = {"version": version("llama-cookbook"), "refused": None}
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            answer |= _laid(list(question["argv"]))
    except Refused as refused:
        answer["refused"] = refused.told()
    return {**answer, "said": said.getvalue()}


def _laid(argv: list[str]) -> dict[str, Any]:
    fire: Any = import_module("fire")
    configs: Any = import_module("llama_cookbook.configs")
    steps: Any = import_module("llama_cookbook.utils.config_utils")
    kept: dict[str, Any] = {}

    def main(**arguments: Any) -> None:
        kept.update(arguments)

    with stage("parse"):
        fire.Fire(main, command=argv)
    train, fsdp = configs.train_config(), configs.fsdp_config()
    with stage("configuration"):
        steps.update_config((train, fsdp), **kept)
        quantized = configs.quantization_config()
        steps.update_config(quantized, **kept)
        bits = _bits(quantized, train.quantization)
        peft = steps.generate_peft_config(train, kept) if train.use_peft else None
        data = steps.generate_dataset_config(train, kept)
    return {
        "train": plain(
            {key: getattr(train, key) for key in fields(_text("training"), "train_config")}
        ),
        "fsdp": plain(fsdp),
        "peft": None if peft is None else plain(peft.to_dict()),
        "quantization": None if bits is None else plain(bits.to_dict()),
        "storage": plain(
            {key: getattr(quantized, key) for key in fields(_text("quantization"), _QUANTIZATION)}
        ),
        "data": plain(data),
    }


def _bits(quantized: Any, word: Any) -> Any:
    """The quantization config of `main`; transformers only checks bitsandbytes' release."""
    real = metadata.version

    def release(name: str) -> str:
        return _BITSANDBYTES if name == "bitsandbytes" else real(name)

    with patch.object(metadata, "version", release):
        return quantized.create_bnb_config(word) if word else None


VERBS = {"schema": schema, "resolve": resolve}
