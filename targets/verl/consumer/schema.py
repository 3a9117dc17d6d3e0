"""The JSON Schema of verl's file for its trainer of given texts."""

import dataclasses
import importlib
import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from tunec.compiler.consumers.json_types import Schema, annotations_of, any_of, json_type, plain
from tunec.targets.verl.consumer.programs import importable

_BASE: Final = "sft_trainer_engine"
_TARGET: Final = "_target_"
_OPEN: Final[Schema] = {"type": "object"}
_RESOLVED: Final[Schema] = {"type": "string", "pattern": r"\$\{"}
"""A value that OmegaConf resolves when it is read."""
_WIDER: Final[Mapping[str, Schema]] = {
    "train_files": {"type": ["array", "string"]},
    "logger": {"type": ["array", "string"]},
    "save_freq": {"type": ["integer", "string"]},
    "test_freq": {"type": ["integer", "string"]},
}
"""Keys of no class beside whose default the program reads another type.

verl 0.8.0 to 0.9.1 trainer/sft_trainer.py `_init_engine`, utils/tracking.py `Tracking`,
utils/dataset/multiturn_sft_dataset.py `MultiTurnSFTDataset`.
"""
_ALSO_READ: Final[Mapping[str, Mapping[str, Schema]]] = {
    "data": {
        "image_key": {"type": "string", "default": "images"},
        "video_key": {"type": "string", "default": "videos"},
        "image_patch_size": {"type": "integer"},
        "shuffle": {"type": "boolean", "default": False},
        "seed": {"type": ["integer", "null"], "default": None},
    },
    "trainer": {
        "wandb_proxy": {"type": ["null", "string"], "default": None},
        "rl_insight": {"type": ["null", "object"], "default": None},
    },
}
"""Keys that its own file lacks, and that are asked for: verl 0.8.0 to 0.9.1 utils/dataset/
multiturn_sft_dataset.py `MultiTurnSFTDataset.__init__`, utils/tracking.py `Tracking`."""
_HYDRA: Final[Mapping[str, Schema]] = {"defaults": {"type": "array"}, "hydra": _OPEN}


def schema(_: Mapping[str, Any]) -> Schema:
    """The JSON Schema (draft 2020-12) of what is laid over verl's own file, in this release.

    A section with a class refuses what the class has no field for, as Hydra makes one of it;
    `x-unknown` of others says that nothing reads a further key.
    """
    with importable():
        hydra: Any = importlib.import_module("hydra")
        omegaconf: Any = importlib.import_module("omegaconf").OmegaConf
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            composed = hydra.compose(_BASE)
        sections: Any = omegaconf.to_container(composed, resolve=False)
        found = _section(sections)
    for name, further in _ALSO_READ.items():
        found["properties"][name]["properties"] |= further
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"verl {version('verl')}: {_BASE}",
        "x-consumer": f"verl=={version('verl')}",
        **found,
        "properties": {**_HYDRA, **found["properties"]},
    }


def _section(found: Mapping[str, Any]) -> Schema:
    """A section by its keys, and by the fields of its class where it has one."""
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
    """Name, type and default of each field of a class by its dotted name."""
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
        return _defaults(field.default_factory())
    return {}


def _defaults(value: Any) -> Schema:
    found = plain(value)
    try:
        json.dumps(found, allow_nan=False)
    except ValueError:
        return {}
    return {"default": found}


def _key(value: Any, name: str) -> Schema:
    """A key by its default: a null says nothing of the type, and an empty mapping is open."""
    if isinstance(value, Mapping):
        return _section(value) if value else {**_OPEN, "default": {}}
    kind = {} if value is None or _is_resolved(value) else json_type(type(value)) or {}
    return _or_resolved(_WIDER.get(name, kind), _defaults(value))


def _is_resolved(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


def _or_resolved(kind: Schema, default: Schema) -> Schema:
    takes_text = not kind or "string" in kind.get("type", ())
    return {**(kind if takes_text else any_of([kind, _RESOLVED])), **default}
