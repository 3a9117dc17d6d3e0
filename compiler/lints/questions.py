"""What a rule asks of a run, as questions and answers that can be written down.

A rule is a pure function of what it is told: asked in the same order and answered the same, it
finds the same. So the questions that it asked before it found nothing, with their answers, prove
that it finds nothing in any other run that answers them so (`tunec.compiler.lints.silence`).
"""

from collections.abc import Callable, Mapping, Sized
from functools import cache
from hashlib import sha256
from operator import attrgetter, itemgetter, methodcaller
from typing import Any, Final

from tunec.compiler.ir.ledger import Definition
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.run import Run

Question = tuple[str, ...]
"""Its kind, and what it is about: `("slot", "zero.stage")`, `("get", "hf", "bf16")`."""

NOTHING: Final = "-"
_ABSENT: Final = "absent"
_MOST_LETTERS: Final = 60


def answer(run: Run, question: Question) -> str:
    """The answer of a run to a question; the digest of one that is long."""
    kind, *about = question
    try:
        text = _ANSWERS[kind](run, *about)
    except IndexError:  # about a file that other runs had: no tree has this answer
        return _ABSENT
    return text if len(text) <= _MOST_LETTERS else f"#{sha256(text.encode()).hexdigest()[:16]}"


def handle_of(run: Run, document: Document) -> str:
    """A document by its kind, and by its number among those of its kind: `hf`, `peft 2`."""
    alike = [each for each in run.documents if each.kind == document.kind]
    at = next(at for at, each in enumerate(alike) if each is document)
    return document.kind if at == 0 else f"{document.kind} {at + 1}"


def document_of(run: Run, handle: str) -> Document:
    """The document of a handle; IndexError where the run has none."""
    kind, _, at = handle.partition(" ")
    return [each for each in run.documents if each.kind == kind][int(at or 1) - 1]


def _of_place(run: Run, place: Place | None) -> str:
    if place is None:
        return NOTHING
    return f"{handle_of(run, place.document)} {place.path} {place.value!r}"


def _of_slot(run: Run, path: str) -> str:
    found = run.slot(path)
    return NOTHING if found is None else _of_definition(run, found)


def _of_definition(_: Run, found: Definition) -> str:
    return f"{found.rank:d} {found.value!r}"


def _of_definitions(run: Run, path: str) -> str:
    found = ((run.place(each), each) for each in run.ledger.of(path))
    return "; ".join(
        f"{each.rank:d} {each.author} {_of_place(run, place)} {each.value!r}"
        for place, each in found
    )


def _of_release(run: Run, package: str) -> str:
    try:
        return str(run.release(package))
    except LookupError:  # none of the run's targets speaks of it
        return NOTHING


def _of_faults(run: Run, at: str) -> str:
    found = run.faults(document_of(run, at))
    told = (f"{each.what} {each.path} {each.is_refused} {each.place.value!r}" for each in found)
    return "; ".join(told)


def _of_effective(run: Run, kind: str, key: str) -> str:
    found = run.effective(kind, key)
    return f"{found.source} {found.value!r}"


def _of_attribute(run: Run, path: str) -> str:
    found: Any = run
    for part in _parts(path):
        found = part(found)
    if is_plain(found):
        return repr(found)
    return f"{len(found)} of them" if isinstance(found, Sized) else "something"


@cache
def _parts(path: str) -> tuple[Callable[[Any], Any], ...]:
    return tuple(_part(name) for name in path.split("."))


def _part(name: str) -> Callable[[Any], Any]:
    """Takes an attribute, `[1]` of what can be counted through, or the values of a mapping."""
    if name.startswith("["):
        return itemgetter(int(name[1:-1]))
    name, called, word = name.partition("(")
    if called and word != ")":
        return methodcaller(name, word[:-1])
    return _values_of if called else attrgetter(name)


def _values_of(whole: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(whole.values())


def is_plain(value: Any) -> bool:
    """Whether a value says all of itself when it is written down."""
    if isinstance(value, tuple | list | frozenset):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _of_documents(run: Run, *kinds: Any) -> str:
    found = run.of(*kinds) if kinds else run.documents
    return ", ".join(handle_of(run, each) for each in found)


def _of_document(run: Run, at: str, attribute: str) -> str:
    value = getattr(document_of(run, at), attribute)
    return repr(sorted(value)) if isinstance(value, frozenset) else repr(value)


_ANSWERS: Final[dict[str, Callable[..., str]]] = {
    "of": _of_documents,
    "document": _of_document,
    "get": lambda run, at, path: _of_place(run, document_of(run, at).get(path)),
    "said": lambda run, *about: _of_place(run, run.said(*about)),
    "each": lambda run, *about: " ".join(_of_place(run, each) for each in run.each(*about)),
    "effective": _of_effective,
    "slot": _of_slot,
    "at": _of_attribute,
    "faults": _of_faults,
    "ledger": _of_definitions,
    "place of": lambda run, path: _of_place(run, run.place(run.slot(path))),
    "effective at": lambda run, *about: _of_place(run, run.effective(*about).place),
    "runs": lambda run, about: str(run.runs(about)),
    "release": _of_release,
}
