"""The JSON Schema of LLaMA-Factory's YAML, from the dataclasses that its parser fills."""

import dataclasses
import importlib
import os
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from tunec.compiler.consumers.json_types import Schema, annotations_of, json_type, plain


def schema(_: Mapping[str, Any]) -> Schema:
    """The JSON Schema (draft 2020-12) of `llamafactory-cli train`'s file, in this release.

    `x-classes` says which class each key is a field of. A key that no class has is refused:
    `parse_dict` is called without `allow_extra_keys` unless ALLOW_EXTRA_ARGS is set
    (hparams/parser.py `_parse_train_args`).
    """
    fields = list(_fields())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"LLaMA-Factory {version('llamafactory')}: llamafactory-cli train",
        "x-consumer": f"llamafactory=={version('llamafactory')}",
        "x-beside": [f"transformers=={version('transformers')}"],
        "x-unknown": "refused",
        "x-classes": {name: kind for name, kind, _, _ in fields},
        "type": "object",
        "properties": {name: _property(hint, default) for name, _, hint, default in fields},
        "additionalProperties": False,
    }


def _fields() -> Iterator[tuple[str, str, Any, Any]]:
    """Name, class, type and default of all that the parser takes.

    The release asks for one of a range of transformers at import; the check can be turned off by
    the variable that its own message names (extras/misc.py `check_dependencies`).
    """
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    parser = importlib.import_module("llamafactory.hparams.parser")
    for kind in vars(parser)["_TRAIN_ARGS"]:
        hints = annotations_of(kind)
        for field in dataclasses.fields(kind):
            if field.init:
                yield field.name, kind.__name__, hints[field.name], _default(field)


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _property(hint: Any, default: Any) -> Schema:
    found = dict(json_type(hint) or {})
    return found if default is dataclasses.MISSING else {**found, "default": plain(default)}
