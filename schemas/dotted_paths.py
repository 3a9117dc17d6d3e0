"""Documents by dotted path: `{"a": {"b": 1}}` is `{"a.b": 1}`."""

from collections.abc import Mapping
from typing import Any


def flat(document: Any, prefix: str = "") -> dict[str, Any]:
    """A document's leaves by dotted path; lists and empty mappings are leaves."""
    if not isinstance(document, Mapping) or not document:
        return {prefix.removesuffix("."): document} if prefix else {}
    found: dict[str, Any] = {}
    for key, value in document.items():
        found |= flat(value, f"{prefix}{key}.")
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """The document whose values stand at these dotted paths; outer ones come first."""
    document: dict[str, Any] = {}
    for key, value in values.items():
        put(document, key, value)
    return document


def put(document: dict[str, Any], key: str, value: Any) -> None:
    """Set the value at a dotted path, with mappings around it where there are none."""
    *parents, last = key.split(".")
    for parent in parents:
        document = document.setdefault(parent, {})
    document[last] = value


def value_at(document: Any, key: str) -> Any:
    """The value at a dotted path; None if there is none."""
    for part in key.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document
