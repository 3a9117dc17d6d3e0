"""Numbers and widths of parallelism in accelerate's file."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.counts import is_whole
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


SECTION: Final = "parallelism_config.parallelism_config_"
"""accelerate's own section; its keys repeat its name."""


def shared_sequences(run: LintContext) -> Iterator[Place]:
    """Each width of more than one rank that DeepSpeed is to share sequences over."""
    for place in run.each("accelerate", f"{SECTION}sp_size"):
        ways = place.value
        if is_whole(ways) and ways > 1:
            yield place
