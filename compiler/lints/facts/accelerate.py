"""Numbers in accelerate's file."""

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place


def count(document: Document, key: str) -> tuple[int, Place] | None:
    """A whole number of at least 1 that the file says, and its place."""
    place = document.get(key)
    if place is None or not isinstance(place.value, int) or isinstance(place.value, bool):
        return None
    return (place.value, place) if place.value > 0 else None


def engine(document: Document) -> Place | None:
    """The place of the engine that the file starts, where that is a word."""
    place = document.get("distributed_type")
    return place if place is not None and isinstance(place.value, str) else None
