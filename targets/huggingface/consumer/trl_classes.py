"""The classes into which a TRL script parses its file; they moved several times."""

from importlib import import_module
from typing import Any, Final

_OLD: Final = "trl.commands.cli_utils"
_SCRIPT_ARGUMENTS: Final = {
    "sft": (("trl", "ScriptArguments"), (_OLD, "SFTScriptArguments"), (_OLD, "SftScriptArguments")),
    "dpo": (("trl", "ScriptArguments"), (_OLD, "DPOScriptArguments"), (_OLD, "DpoScriptArguments")),
    "grpo": (("trl.scripts.grpo", "GRPOScriptArguments"),),
    "reward": (("trl", "ScriptArguments"),),
}
"""Newest first: scripts/sft.py, dpo.py, grpo.py and reward.py; before 0.15 commands/scripts."""
_REWARD: Final = (("trl.scripts.reward", "make_parser"),)
"""The script that releases before 0.24 lack, although they have its classes."""
_CONFIGS: Final = {
    "sft": "SFTConfig",
    "dpo": "DPOConfig",
    "grpo": "GRPOConfig",
    "reward": "RewardConfig",
}


def classes(method: str) -> tuple[Any, ...] | None:
    """The dataclasses that `trl METHOD` parses into; None if the release has no such script.

    trl 0.8.6 uses TrainingArguments in place of its own config.
    """
    script = _first(_SCRIPT_ARGUMENTS[method])
    if script is None or (method == "reward" and _first(_REWARD) is None):
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
