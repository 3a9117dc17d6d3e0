"""Classes from a model's own repository: code that runs only if the user trusts it."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.tracing.subject import Untraceable

_CONFIG: Final = "AutoConfig"
_HEADS: Final = (
    *("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForVision2Seq"),
    "AutoModelForSeq2SeqLM",
)
"""Keys of `auto_map` whose classes have a language model head."""


def is_remote(config: Mapping[str, Any]) -> bool:
    """Whether a config's classes are in its own repository, and not in transformers."""
    import transformers

    return bool(config.get("auto_map")) and (
        config.get("model_type") not in transformers.CONFIG_MAPPING
    )


def classes_of(config: Mapping[str, Any], code: str) -> tuple[Any, Any]:
    """The config and the class of the model, from the Python files of a directory.

    transformers 5.23 dynamic_module_utils.py `get_class_from_dynamic_module`. Raises Untraceable if
    `auto_map` names no class with a language model head, or its code cannot be run.
    """
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    named = config["auto_map"]
    head = next((named[key] for key in _HEADS if key in named), None)
    if head is None or _CONFIG not in named:
        raise Untraceable("`auto_map` names no config, or no class with a language model's head")
    try:
        made = get_class_from_dynamic_module(named[_CONFIG], code).from_dict(dict(config))
        maker = get_class_from_dynamic_module(head, code)
    except Exception as fault:  # noqa: BLE001  whatever the model's own code raises
        raise Untraceable(f"the model's own code cannot be run: {told(fault)}") from None
    made.use_cache = False
    return made, maker


def told(fault: Exception) -> str:
    """An exception as one line of text."""
    return f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0]}"
