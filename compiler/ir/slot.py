"""A field of a group, with what `tunec slots` says of it."""

from dataclasses import field
from typing import Any


def slot(doc: str, unit: str = "") -> Any:
    """A field that is a slot: what it holds, and in which unit it counts."""
    return field(metadata={"doc": doc, "unit": unit})
