"""The JSON Schemas of the files that are composed over verl's own, for SFT and for rewards."""

import dataclasses
import importlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final

from tunec.compiler.consumers.json_types import Schema, annotations_of, any_of, json_type, plain
from tunec.targets.verl.consumer.programs import importable

_BASE: Final = "sft_trainer_engine"
_MISSING: Final = "???"
"""OmegaConf's mark for a value that the user must give."""
_TARGET: Final = "_target_"
_OPEN: Final[Schema] = {"type": "object"}
_OPEN_SECTION: Final[Schema] = {"additionalProperties": True}
_RESOLVED: Final[Schema] = {"type": "string", "pattern": r"\$\{"}
"""A value that OmegaConf resolves when it is read."""
_WIDER: Final[Mapping[str, Schema]] = {
    "train_files": {"type": ["array", "string"]},
    "val_files": {"type": ["array", "null", "string"]},
    "logger": {"type": ["array", "string"]},
    "save_freq": {"type": ["integer", "string"]},
    "test_freq": {"type": ["integer", "string"]},
}
"""Keys without a class for which the program also accepts another type than the default's.

verl 0.8.0 to 0.9.1 trainer/sft_trainer.py `_init_engine`, utils/tracking.py `Tracking`,
utils/dataset/multiturn_sft_dataset.py `MultiTurnSFTDataset`, rl_dataset.py `RLHFDataset`."""
_TRAINER: Final[Mapping[str, Schema]] = {
    "wandb_proxy": {"type": ["null", "string"], "default": None},
    "rl_insight": {"type": ["null", "object"], "default": None},
}
_WRAPPED: Final[Mapping[str, Schema]] = {
    "transformer_layer_cls_to_wrap": {"type": ["array", "null", "string"]}
}
_ALSO_READ: Final[Mapping[str, Mapping[str, Mapping[str, Schema]]]] = {
    _BASE: {
        "data": {
            "image_key": {"type": "string", "default": "images"},
            "video_key": {"type": "string", "default": "videos"},
            "image_patch_size": {"type": "integer"},
            "shuffle": {"type": "boolean", "default": False},
            "seed": {"type": ["integer", "null"], "default": None},
        },
        "trainer": _TRAINER,
        "engine.wrap_policy": _WRAPPED,
    },
    "ppo_trainer": {
        "data": {
            "cache_dir": {"type": "string", "default": "~/.cache/verl/rlhf"},
            "chat_template_func": {"type": ["null", "string"], "default": None},
            "filter_prompts": {"type": "boolean", "default": True},
            "need_tools_kwargs": {"type": "boolean", "default": False},
        },
        "trainer": _TRAINER,
        "actor_rollout_ref.actor.fsdp_config.wrap_policy": _WRAPPED,
    },
}
"""Keys that the program reads and its own file lacks, by section: verl 0.8.0 to 0.9.1
utils/dataset/multiturn_sft_dataset.py `MultiTurnSFTDataset.__init__`, rl_dataset.py
`RLHFDataset.__init__`, utils/tracking.py `Tracking`, utils/fsdp_utils.py `get_fsdp_wrap_policy`."""
_OPEN_KEYS: Final = frozenset({"custom_reward_function"})
"""Sections whose further keys are read: trainer/ppo/reward.py `get_custom_reward_fn`."""
_HYDRA: Final[Mapping[str, Schema]] = {"defaults": {"type": "array"}, "hydra": _OPEN}


def schema(question: Mapping[str, Any]) -> Schema:
    """The JSON Schema (draft 2020-12) of a file composed over verl's own, in this release.

    `base` names verl's file, `sft_trainer_engine` or `ppo_trainer`. A section with a class refuses
    keys that are no field of the class, as Hydra instantiates it; in others `x-unknown` states that
    further keys are ignored.
    """
    base = question.get("base", _BASE)
    with importable():
        hydra: Any = importlib.import_module("hydra")
        omegaconf: Any = importlib.import_module("omegaconf").OmegaConf
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            composed = hydra.compose(base)
        sections: Any = omegaconf.to_container(composed, resolve=False)
        found = _section(sections)
    for path, further in _ALSO_READ[base].items():
        section = found
        for name in path.split("."):
            section = section["properties"][name]
        section["properties"] |= further
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"verl {version('verl')}: {base}",
        "x-consumer": f"verl=={version('verl')}",
        **found,
        "properties": {**_HYDRA, **found["properties"]},
    }


def _section(found: Mapping[str, Any]) -> Schema:
    """The schema of a section by its keys, and by the fields of its class if it has one."""
    properties = {key: _key(value, key) for key, value in found.items() if key != _TARGET}
    kind = found.get(_TARGET)
    if kind is None:
        return _closed("ignored", properties)
    for name, hint, default in _fields(kind):
        typed = json_type(hint) or {}
        known = _defaults(found[name]) if name in found else default
        if not properties.get(name, {}).get("properties"):
            properties[name] = _or_resolved(typed, known)
    properties[_TARGET] = {"type": "string"}
    return _closed("refused", properties)


def _closed(unknown: str, properties: Schema) -> Schema:
    return {
        **_OPEN,
        "x-unknown": unknown,
        "additionalProperties": False,
        "properties": properties,
    }


def _fields(kind: str) -> Iterator[tuple[str, Any, Schema]]:
    """The name, type and default of each field of a class, given by its dotted name."""
    module, _, name = kind.rpartition(".")
    cls: Any = getattr(importlib.import_module(module), name)
    hints = annotations_of(cls)
    for field in dataclasses.fields(cls):
        if field.init and field.name != _TARGET:
            yield field.name, hints[field.name], _default(field)


def _default(field: "dataclasses.Field[Any]") -> Schema:
    if field.default is not dataclasses.MISSING:
        return _defaults(field.default)
    if field.default_factory is not dataclasses.MISSING:
        with suppress(AssertionError, AttributeError, TypeError, ValueError):
            return _defaults(field.default_factory())  # some cannot be made of nothing
    return {}


def _defaults(value: Any) -> Schema:
    found = plain(value)
    try:
        json.dumps(found, allow_nan=False)
    except ValueError:
        return {}
    return {"default": found}


def _key(value: Any, name: str) -> Schema:
    """The schema of a key by its default: null allows any type, and an empty mapping any key."""
    if isinstance(value, Mapping):
        if not value:
            return {**_OPEN, "default": {}}
        return {**_section(value), **_OPEN_SECTION} if name in _OPEN_KEYS else _section(value)
    if value == _MISSING:
        return {"type": "string"}
    kind = {} if value is None or _is_resolved(value) else json_type(type(value)) or {}
    return _or_resolved(_WIDER.get(name, kind), _defaults(value))


def _is_resolved(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


def _or_resolved(kind: Schema, default: Schema) -> Schema:
    takes_text = not kind or "string" in kind.get("type", ())
    return {**(kind if takes_text else any_of([kind, _RESOLVED])), **default}
