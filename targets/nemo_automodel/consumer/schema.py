"""The JSON Schema of the recipe's file: the fields of its sections' classes."""

import dataclasses
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

from tunec.compiler.consumers.json_types import Schema, annotations_of, json_type, plain

_PACKAGE: Final = "nemo_automodel"
_PARALLEL: Final = "components.distributed.config"
_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "step_scheduler": ("components.training.step_scheduler.StepSchedulerConfig",),
    "lr_scheduler": ("components.optim.optimizer.LRSchedulerConfig",),
    "checkpoint": ("components.checkpoint.config.CheckpointingConfig",),
    "peft": ("components._peft.lora.PeftConfig",),
    "distributed": tuple(
        f"{_PARALLEL}.{name}" for name in ("FSDP2Config", "MegatronFSDPConfig", "DDPConfig")
    ),
}
"""Classes by section: recipes/_typed_config.py `RecipeConfig`, recipes/_dist_utils.py
`parse_distributed_section`, recipes/llm/train_ft.py `setup`."""
_SIZES: Final = ("tp_size", "pp_size", "cp_size", "ep_size", "dp_size", "dp_replicate_size")
_ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "step_scheduler": ("local_batch_size", "dp_size", "dataloader"),
    "checkpoint": ("restore_from",),
    "distributed": (*_SIZES, "strategy", "pipeline", "moe", "_recursive_", "_convert_"),
}
"""Keys that are read besides the fields of the class."""
_NAMED: Final = ("_target_",)
_LOADERS: Final = ("dataloader", "validation_dataloader")
_OF_LOADERS: Final = (
    *("shuffle", "group_by_length", "shuffle_buffer_size", "batch_size", "num_workers"),
    *("pin_memory", "persistent_workers", "prefetch_factor", "drop_last", "collate_fn"),
    *("dataloader_type", "dataset"),
)
"""recipes/_typed_config.py `_resolve_dataloader`, 0.6.0 and 0.7.0."""


def schema(_: Mapping[str, Any]) -> Schema:
    """The JSON Schema (draft 2020-12) of the file, in this release.

    A section with a class refuses keys that are no field of the class; others are passed to the
    object that they name.
    """
    properties = {name: _section(name, kinds) for name, kinds in _CLASSES.items()}
    if hasattr(_class("recipes._typed_config.RecipeConfig"), "validation_dataloaders"):
        properties |= {name: _closed(_open(_OF_LOADERS)) for name in _LOADERS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"nemo-automodel {version('nemo-automodel')}: train_ft",
        "x-consumer": f"nemo-automodel=={version('nemo-automodel')}",
        "type": "object",
        "properties": properties,
        "additionalProperties": True,
    }


def _section(name: str, kinds: tuple[str, ...]) -> Schema:
    fields = {key: each for kind in kinds for key, each in _fields(_class(kind))}
    return _closed({**_open(_ALSO.get(name, ())), **fields})


def _open(names: Iterable[str]) -> dict[str, Schema]:
    """Keys that accept anything."""
    return {name: {} for name in names}


def _closed(properties: Mapping[str, Schema]) -> Schema:
    return {
        "type": ["null", "object"],
        "x-unknown": "refused",
        "additionalProperties": False,
        "properties": {**_open(_NAMED), **properties},
    }


def _class(name: str) -> Any:
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(f"{_PACKAGE}.{module}"), own)


def _fields(cls: Any) -> Iterator[tuple[str, Schema]]:
    """The name, type and default of each field; a number may be text, as `1e-8` in YAML 1.1."""
    hints = annotations_of(cls)
    for field in dataclasses.fields(cls):
        kind = json_type(hints[field.name]) or {}
        is_number = "number" in str(kind.get("type"))
        known = {} if field.default is dataclasses.MISSING else _default(field.default)
        yield field.name, {**({} if is_number else kind), **known}


def _default(value: Any) -> Schema:
    found = plain(value)
    try:
        json.dumps(found, allow_nan=False)
    except ValueError:
        return {}
    return {"default": found}
