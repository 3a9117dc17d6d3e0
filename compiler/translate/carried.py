"""Keys that no slot stands for: those that a spec passes through, and why it cannot the others."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.emit import schema
from tunec.compiler.ir.extra import Extra
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.passing import Placed, placed_alone
from tunec.compiler.requirements import Asked
from tunec.schemas.frozen import dataclass

_AUTO: Final = "auto"


@dataclass(frozen=True, slots=True)
class Carried:
    """A key of a file that was read, as a spec passes it through."""

    place: Place
    extra: Extra


@dataclass(frozen=True, slots=True)
class Dropped:
    """A key of a file that was read and that a spec has no word for."""

    place: Place
    reason: str


def carried(
    leftovers: Iterable[Place], asked: Sequence[Asked], software: Mapping[str, str]
) -> Iterator[Carried | Dropped]:
    """What becomes of each key: it is passed through where a file of the same name has it.

    With it go the keys of its block that are left to the trainer, which others would fill in.
    """
    found = [_carried(place, asked, software) for place in leftovers]
    yield from found
    for document, block in dict.fromkeys(
        (each.place.document, each.place.path.partition(".")[0])
        for each in found
        if isinstance(each, Carried)
    ):
        more = (_carried(place, asked, software) for place in _left_to_others(document, block))
        yield from (each for each in more if isinstance(each, Carried))


def _left_to_others(document: Document, block: str) -> Iterator[Place]:
    rows = {key for entry in (document.file.entries if document.file else ()) for key in entry.keys}
    for path, place in document.found.items():
        if path.startswith(f"{block}.") and place.value == _AUTO and path not in rows:
            yield place


def _carried(
    place: Place, asked: Sequence[Asked], software: Mapping[str, str]
) -> Carried | Dropped:
    file = place.document.file
    for target, version in asked:
        mine = tuple(each for each in target.files if file is not None and each.name == file.name)
        if not mine:
            continue
        extra = Extra(target.name, place.path, place.value)
        found = placed_alone(extra, mine, target.dialect(version, software), schema)
        if isinstance(found, Placed):
            return Carried(place, extra)
        return Dropped(place, found.message.partition(": ")[2])
    return Dropped(place, "no target that the spec compiles to has such a file")


def extra_of(kept: Iterable[Carried]) -> dict[str, Any]:
    """The `extra` of a spec."""
    found: dict[str, Any] = {}
    for each in kept:
        inner = found.setdefault(each.extra.owner, {})
        *parents, last = each.extra.path.split(".")
        for part in parents:
            inner = inner.setdefault(part, {})
        inner[last] = each.extra.value
    return found
