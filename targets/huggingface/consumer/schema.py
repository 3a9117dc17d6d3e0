"""JSON Schemas and defaults of the configuration classes, from their fields and signatures."""

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
import transformers

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.json_types import Schema, annotations_of, json_type, plain
from tunec.targets.huggingface.consumer.classes import find, home, version
from tunec.targets.huggingface.consumer.hardware import machine

# Default values that hold the time of day or the name of this machine.
_PASSING: Final = frozenset({"logging_dir"})


# Parameters of BitsAndBytesConfig whose default None does not tell their type: its `__init__` and
# `post_init` in utils/quantization_config.py, the same in transformers 4.40.2 and 5.23.0. A dtype
# is given by name.
_UNTOLD: Final[Mapping[str, Any]] = {
    "llm_int8_skip_modules": list[str] | None,
    "bnb_4bit_compute_dtype": str | None,
    "bnb_4bit_quant_storage": str | None,
}


def schema(question: Mapping[str, Any]) -> Schema | None:
    """The JSON Schema (draft 2020-12) of `class`; None if the release has no such class."""
    name = question["class"]
    kind = find(name)
    if kind is None:
        return None
    properties = {key: field_schema(hint, default) for key, hint, default in fields_of(kind)}
    required = [key for key, _, default in fields_of(kind) if default is dataclasses.MISSING]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{name} of {home(name)} {version(name)}",
        "x-consumer": f"{home(name)}=={version(name)}",
        "x-beside": _beside(name),
        "x-unknown": "refused",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _beside(name: str) -> list[str]:
    """Pins of other packages that the class depends on: torch, and transformers if it inherits."""
    pins = [f"torch=={torch.__version__.split('+')[0]}"]
    return pins if home(name) != "trl" else [*pins, f"transformers=={transformers.__version__}"]


def defaults(question: Mapping[str, Any]) -> dict[str, Any] | None:
    """Each field's value in an object that is built from its required fields alone."""
    kind = find(question["class"])
    if kind is None:
        return None
    needed = {"output_dir": "out"} if "output_dir" in {key for key, _, _ in fields_of(kind)} else {}
    with machine(declared(question), question.get("world_size", 1)):
        settled = kind(**needed)
        return {key: _settled(settled, key) for key, _, _ in fields_of(kind)}


def _settled(held: Any, key: str) -> Any:
    return None if key in _PASSING else plain(getattr(held, key, None))


def fields_of(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of everything that the constructor accepts by name."""
    if _is_plain_dataclass(kind):
        hints = annotations_of(kind)
        for field in dataclasses.fields(kind):
            if field.init:
                yield field.name, _taken(field, hints[field.name]), _default(field)
        return
    for name, parameter in list(inspect.signature(kind.__init__).parameters.items())[1:]:
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            yield name, _UNTOLD.get(name, type(parameter.default)), parameter.default


def _taken(field: "dataclasses.Field[Any]", hint: Any) -> Any:
    """The type, joined with the type of a bare flag's value: True for `fsdp`, a text otherwise."""
    const = field.metadata.get("const")
    return hint if const is None else hint | type(const)


def _is_plain_dataclass(kind: Any) -> bool:
    """Whether the constructor takes the fields: BitsAndBytesConfig is a dataclass with its own."""
    taken = set(inspect.signature(kind.__init__).parameters) - {"self", "kwargs"}
    return dataclasses.is_dataclass(kind) and taken <= {
        each.name for each in dataclasses.fields(kind)
    }


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def field_schema(hint: Any, default: Any) -> Schema:
    """A field's schema; a type that JSON cannot express admits only null, as the default."""
    found = json_type(hint, _known)
    admitted: Schema = {"type": "null"} if found is None and default is None else dict(found or {})
    return admitted if default is dataclasses.MISSING else {**admitted, "default": plain(default)}


def _known(annotation: Any) -> Schema | None:
    """The schema of peft's nested settings (`LoftQConfig`, ...), objects in adapter_config.json."""
    is_nested = dataclasses.is_dataclass(annotation) and annotation.__module__.startswith("peft.")
    return {"type": "object"} if is_nested else None
