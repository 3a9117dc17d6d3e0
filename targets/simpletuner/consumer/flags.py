"""The flags and model families of SimpleTuner."""

import argparse
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any

from tunec.targets.simpletuner.consumer.surroundings import Answer, Question, plain, simpletuner


def schema(_question: Question) -> Answer:
    """Every flag of the parser: names, type, choices, default, whether it must be given."""
    parser = simpletuner("helpers.configuration.cmd_args").get_argument_parser()
    loader = simpletuner("helpers.configuration.cli_utils")
    optimizers = simpletuner("helpers.training.optimizer_param").optimizer_choices
    return {
        "version": importlib.metadata.version("simpletuner"),
        "flags": {
            action.dest: _flag(action, loader.mapping_to_cli_args)
            for action in parser._actions  # noqa: SLF001
            if action.dest != "help"
        },
        "legacy": sorted(loader._LEGACY_ARG_HANDLERS),  # noqa: SLF001
        "optimizers": {name: plain(_without_class(each)) for name, each in optimizers.items()},
    }


def _flag(action: argparse.Action, to_argv: Callable[[Mapping[str, Any]], list[str]]) -> Answer:
    """One flag; `structured`: whether the loader of config.json passes on an object."""
    return {
        "type": getattr(action.type, "__name__", "str"),
        "options": list(action.option_strings),
        "choices": None if action.choices is None else sorted(action.choices),
        "default": plain(action.default),
        "required": action.required,
        "structured": bool(to_argv({action.dest: {"key": 1}})),
    }


def _without_class(choice: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in choice.items() if key != "class"}


def defaults(_question: Question) -> Answer:
    """The default of each flag."""
    found = simpletuner("helpers.configuration.cmd_args").get_default_config()
    return {name: plain(value) for name, value in sorted(found.items()) if name != "help"}


def families(_question: Question) -> Answer:
    """The model families, each with its flavours and their repositories."""
    known = simpletuner("helpers.models.registry").ModelRegistry.model_families()
    flags = simpletuner("helpers.configuration.cmd_args").get_argument_parser()._actions  # noqa: SLF001
    accepted = next(flag.choices for flag in flags if flag.dest == "model_family")
    return {name: _family(known[name]) for name in sorted(accepted)}


def _family(model: Any) -> Answer:
    return {
        "class": getattr(getattr(model, "MODEL_CLASS", None), "__name__", None),
        "default": getattr(model, "DEFAULT_MODEL_FLAVOUR", None),
        "flavours": plain(getattr(model, "HUGGINGFACE_PATHS", {})),
        "lora_targets": plain(getattr(model, "DEFAULT_LORA_TARGET", None)),
    }
