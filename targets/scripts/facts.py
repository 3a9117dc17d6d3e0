"""Facts of a script's dataclasses and parsers, read from its text without running it."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any, Final

Schema = dict[str, Any]

_TYPES: Final[Mapping[str, str]] = {
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "dict": "object",
}
_LISTS: Final = ("List", "list", "Tuple", "tuple", "Sequence")
_NOTHING: Final = object()


def fields(text: str, name: str) -> dict[str, Schema]:
    """The annotated fields of a class, each with its type and, if it is a literal, its default.

    A field without a default has the mark `x-required`. A type that JSON Schema cannot express (a
    class, an enumeration of torch) allows anything. Raises LookupError for an undefined class.
    """
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return dict(_fields(node))
    raise LookupError(f"there is no class {name}")


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, Schema]]:
    """The annotated fields, and those that are only assigned, as update_config sets them too."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            default = _default(each.value)
            schema = _admitting(annotated(each.annotation), default)
            required = {"x-required": True} if each.value is None else {}
            yield each.target.id, {**schema, **_said(default), **required}
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            default = _default(each.value)
            yield each.targets[0].id, {**_of_value(default), **_said(default)}


def annotated(node: ast.expr) -> Schema:
    """The JSON Schema of an annotation."""
    if isinstance(node, ast.Constant) and node.value is None:
        return {"type": "null"}
    if isinstance(node, ast.Name):
        return {"type": _TYPES[node.id]} if node.id in _TYPES else {}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _any_of(annotated(node.left), annotated(node.right))
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return _generic(node.value.id, node.slice)
    return {}


def _generic(name: str, inner: ast.expr) -> Schema:
    if name == "Optional":
        return _any_of(annotated(inner), {"type": "null"})
    if name == "Union" and isinstance(inner, ast.Tuple):
        return _any_of(*map(annotated, inner.elts))
    if name in _LISTS:
        items = annotated(inner) if not isinstance(inner, ast.Tuple) else {}
        return {"type": "array", **({"items": items} if items else {})}
    return {}


def _any_of(*choices: Schema) -> Schema:
    if not all(choices):
        return {}
    if all(set(each) == {"type"} for each in choices):
        return {"type": sorted(each["type"] for each in choices)}
    return {"anyOf": list(choices)}


def _default(node: ast.expr | None) -> Any:
    """A literal, that of `field(default=...)`, the list of a default_factory, or `_NOTHING`."""
    if isinstance(node, ast.Call):
        given = {each.arg: each.value for each in node.keywords}
        inner = given.get("default", given.get("default_factory"))
        return _default(inner.body if isinstance(inner, ast.Lambda) else inner)
    try:
        return _NOTHING if node is None else ast.literal_eval(node)
    except ValueError:
        return _NOTHING


def _said(default: Any) -> Schema:
    return {} if default is _NOTHING else {"default": default}


def _of_value(default: Any) -> Schema:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return {"type": kinds[type(default)]} if type(default) in kinds else {}


def _admitting(schema: Schema, default: Any) -> Schema:
    """The schema, with null allowed if it is the default, as in `x: str = None`."""
    if default is None and isinstance(schema.get("type"), str):
        return {"type": sorted({schema["type"], "null"})}
    return schema


def closed(title: str, consumer: str, properties: Mapping[str, Schema]) -> Schema:
    """A JSON Schema of an object with these keys and no others."""
    marked = {key: dict(value) for key, value in properties.items()}
    required = [key for key, value in marked.items() if value.pop("x-required", False)]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "x-consumer": consumer,
        "type": "object",
        "properties": marked,
        "required": required,
        "additionalProperties": False,
    }


# ── parsers ──────────────────────────────────────────────────────────────────────────────────────


def calls(text: str) -> Iterator[ast.Call]:
    """Every `add_argument(...)` of a text, in order."""
    found = (each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Call))
    added = (
        each
        for each in found
        if isinstance(each.func, ast.Attribute) and each.func.attr == "add_argument"
    )
    yield from sorted(added, key=lambda each: each.lineno)


def flags(text: str) -> dict[str, Schema]:
    """The flags that a text adds to argparse parsers, by name without dashes."""
    found: dict[str, Schema] = {}
    for call in calls(text):
        name = _default(call.args[0]) if call.args else _NOTHING
        if isinstance(name, str) and name.startswith("--"):
            found[name.removeprefix("--")] = _flag({each.arg: each.value for each in call.keywords})
    return found


def _flag(given: Mapping[str | None, ast.expr]) -> Schema:
    if "action" in given and _default(given["action"]) == "store_true":
        return {"type": "boolean", "default": False}
    choices, default = _default(given.get("choices")), _default(given.get("default"))
    kind = annotated(given["type"]) if "type" in given else {"type": "string"}
    schema = {"enum": choices} if isinstance(choices, list) else kind
    if "nargs" in given and schema:
        schema = {"anyOf": [schema, {"type": "array", "items": schema}]}
    return {**schema, **_said(default)}
