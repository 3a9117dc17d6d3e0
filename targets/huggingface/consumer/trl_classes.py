"""The classes into which a TRL script parses its file; they moved several times."""

from importlib import import_module
from typing import Any, Final

_OLD: Final = "trl.commands.cli_utils"
_SCRIPT_ARGUMENTS: Final = {
    "sft": (("trl", "ScriptArguments"), (_OLD, "SFTScriptArguments"), (_OLD, "SftScriptArguments")),
    "dpo": (("trl", "ScriptArguments"), (_OLD, "DPOScriptArguments"), (_OLD, "DpoScriptArguments")),
    "grpo": (("trl.scripts.grpo", "GRPOScriptArguments"),),
}
"""Newest first: scripts/sft.py, scripts/dpo.py, scripts/grpo.py; before 0.15 commands/scripts."""
_CONFIGS: Final = {"sft": "SFTConfig", "dpo": "DPOConfig", "grpo": "GRPOConfig"}


def classes(method: str) -> tuple[Any, ...] | None:
    """The dataclasses that `trl METHOD` parses into; None if the release has no such script.

    trl 0.8.6 uses TrainingArguments in place of its own config.
    """
    script = _first(_SCRIPT_ARGUMENTS[method])
    if script is None:
        return None
    config = _first((("trl", _CONFIGS[method]), ("transformers", "TrainingArguments")))
    mixture = _first((("trl", "DatasetMixtureConfig"),))
    held = (script, config, _first((("trl", "ModelConfig"),)), mixture)
    return tuple(each for each in held if each is not None)


def parser() -> Any:
    """The parser class of the scripts."""
    return _first((("trl", "TrlParser"), (_OLD, "TrlParser")))


def _first(places: tuple[tuple[str, str], ...]) -> Any:
    for module, name in places:
        try:
            return getattr(import_module(module), name)
        except (AttributeError, ImportError):
            continue
    return None
