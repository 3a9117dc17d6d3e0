"""What keys express besides slots: values of a spec, and meanings that only their program knows."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.read import WRONG_SHAPE
from tunec.compiler.target import Phrase
from tunec.compiler.translate.intents import Values


class Phrases(Struct, frozen=True):
    """The values that phrases express together."""

    words: Values
    """The values by slot, or by field of `train`."""
    keys: frozenset[tuple[str, str]]
    """The keys that express it, each with the name of its document."""

    def are_of(self, place: Place) -> bool:
        """Whether a key expresses one of them."""
        return (place.document.name, place.path) in self.keys


def phrases_of(run: LintContext) -> Phrases:
    """The values that the keys of all documents express in a spec."""
    words: dict[str, object] = {}
    keys: set[tuple[str, str]] = set()
    for document in run.documents:
        for phrase, said in phrases_in(document):
            if phrase.on_devices is not None:
                continue
            words |= said
            keys |= {(document.name, key) for key in phrase.keys}
    return Phrases(words, frozenset(keys))


def phrases_in(document: Document) -> Iterator[tuple[Phrase, Mapping[str, object]]]:
    """The phrases that apply to a document, each with its values."""
    for phrase in document.file.phrases if document.file else ():
        if said := _slots_of(phrase, document):
            yield phrase, said


def _slots_of(phrase: Phrase, document: Document) -> Mapping[str, object]:
    every = (*phrase.keys, *phrase.beside)
    there = {key: document.flat[key].value for key in every if key in document.flat}
    try:
        is_said = phrase.by_default or any(key in there for key in phrase.keys)
        return phrase.say(there) if is_said else {}
    except WRONG_SHAPE:
        return {}


def foreign(run: LintContext) -> Iterator[tuple[Place, str]]:
    """Keys whose values mean more to their own program than a slot, with the difference."""
    for document in run.documents:
        if document.file is None:
            continue
        values = {path: each.value for path, each in document.flat.items()}
        try:
            found = tuple(document.file.foreign(values))
        except WRONG_SHAPE:
            continue
        yield from ((document.found[key], why) for key, why in found)
