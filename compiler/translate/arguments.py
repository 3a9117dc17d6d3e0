"""The flags of a user's script, which the spec passes to it unchanged.

Those of transformers' TrainingArguments are in the file that the script gets; no file holds the
others, such as those of the model and the data.
"""

from collections.abc import Iterator

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.document import Place
from tunec.compiler.translate.documents import is_own_flags
from tunec.compiler.translate.scripts import slots_of
from tunec.compiler.translate.sources import Sources
from tunec.schemas.source import text_of


def is_argument(place: Place) -> bool:
    """Whether a key is such a flag and expresses no slot."""
    return is_own_flags(place.document) and not any(slots_of(place.document, place.path))


def arguments_of(sources: Sources) -> list[str]:
    """The words in the order of the command."""
    places = [
        place
        for document in sources.run.documents
        if is_own_flags(document)
        for place in document.found.values()
        if place.path not in document.unknown
    ]
    places.sort(key=lambda place: (place.key_span.line, place.key_span.column))
    return [word for place in places for word in _words(place, sources)]


def _words(place: Place, sources: Sources) -> Iterator[str]:
    """The flag as written, with its values, or with the value from the command line."""
    yield text_of(place.key_span, place.document.text)
    slots = tuple(slots_of(place.document, place.path))
    given = sources.known.values.get(slots[0]) if len(slots) == 1 else None
    if given is not None and sources.is_given(slots[0]):
        yield str(given)
    else:
        yield from _values(place.node)


def _values(node: Node) -> Iterator[str]:
    if node.items is not None:
        for item in node.items:
            yield from _values(item)
    elif node.written is not None:
        yield node.written
