"""The outcome of every key that was read: one without a successor has a reason, or is an error."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from tunec.compiler.consumers.moved_keys import MOVED, Moved
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined, shown
from tunec.compiler.lints.document import Place
from tunec.compiler.translate.admission import PACKAGES, is_ignored
from tunec.compiler.translate.carried_keys import CarriedKey
from tunec.compiler.translate.leftovers import Read
from tunec.compiler.translate.sources import Sources
from tunec.compiler.translate.writing import Written

Outcome = Literal["said", "kept", "absent", "harmless", "other", "lost"]
"""`said`: slots express it; `kept`: the new files contain it; `absent`: null, like an absent key;
`harmless`: left out, and the run is the same; `other`: left out, and something else happens, which
is reported; `lost`: left out, with unknown effect."""


class Account(Struct, frozen=True):
    """A key that was read, and its outcome."""

    read: Read
    outcome: Outcome
    why: str = ""
    """The reason why the new files do not contain it."""

    @property
    def path(self) -> str:
        """The key's path in the file."""
        return self.read.place.path


_UNSAID: Final = {
    "idle": "it has no effect in this run",
    "follows": "it follows from the rest of the run",
    "may follow": "it follows from the rest of the run",
    "filled": "the program that reads the other files fills it in",
    "meeting": "the new launcher counts processes and lets them meet in its own way",
    "default": "the program does so by itself",
}
_IGNORED: Final = "the release that is taken to read it does not know it, and ignores it"


def accounts(sources: Sources, written: Iterable[Written]) -> tuple[Account, ...]:
    """The outcome of each key of the files, after the new ones are written."""
    files = tuple(written)
    kept = {_named(each.read): each for one in files for each in one.kept}
    there = frozenset(key for one in files for key in one.keys)
    return tuple(_account(read, sources, kept, there) for read in sources.reads)


def _account(
    read: Read,
    sources: Sources,
    kept: Mapping[tuple[str, str], CarriedKey],
    there: frozenset[tuple[str, str]],
) -> Account:
    file = read.place.document.file
    is_there = file is not None and (file.name, read.key) in there
    if read.fate in ("said", "file") or sources.is_phrase(read.place):
        return Account(read, "said")
    carried = kept.get(_named(read))
    if (carried and carried.keys) or (read.fate != "left" and is_there):
        return Account(read, "kept")
    if carried and carried.apart:
        return Account(read, "other", carried.apart)
    if carried:
        return Account(read, "harmless", _UNSAID["default"])
    if read.fate == "default" and read.place.value is None:
        return Account(read, "absent")
    moved = next(given_up(read), None)
    if moved is None and read.fate in _UNSAID:
        return Account(read, "harmless", _UNSAID[read.fate])
    if moved is None:
        is_unread = is_ignored(read.place.document, sources.run, read.key)
        return Account(read, "other", _IGNORED) if is_unread else Account(read, "lost")
    is_same = moved.changes_nothing(read.place.value)
    return Account(read, "harmless" if is_same else "other", moved.instead)


def _named(read: Read) -> tuple[str, str]:
    return read.place.document.name, read.key


def given_up(read: Read) -> Iterator[Moved]:
    """The table entries about a key without a successor."""
    document = read.place.document
    leaves = document.file.leaves if document.file is not None else ()
    tables = (leaves, *(MOVED[package] for package in PACKAGES.get(document.kind, ())))
    for table in tables:
        yield from (each for each in table if each.instead and is_within(read.key, each.old))


def kept_apart(read: Read) -> str | None:
    """The reason why no other program has an equivalent of a key's value, if it is known."""
    document = read.place.document
    leaves = document.file.leaves if document.file is not None else ()
    told = (each.apart(read.place.value) for each in leaves if is_within(read.key, each.old))
    return next(filter(None, told), None)


def is_within(key: str, other: str) -> bool:
    """Whether a key equals another, or is below it."""
    return key == other or key.startswith(f"{other}.")


# ── what is to be said of them ───────────────────────────────────────────────────────────────────


def left_out(every: Sequence[Account]) -> Iterator[Diagnostic]:
    """One note about harmless omissions, and one warning about those that change the run."""
    yield from without_effect(_why(every, "harmless"))
    yield from with_effect(_why(every, "other"))


def _why(every: Iterable[Account], outcome: Outcome) -> list[tuple[Place, str]]:
    return [(each.read.place, each.why) for each in every if each.outcome == outcome]


def without_effect(every: Sequence[tuple[Place, str]]) -> Iterator[Diagnostic]:
    """One note about all omissions that do not affect training, with the reason for each key."""
    if every:
        yield Diagnostic(
            "left-out",
            "note",
            f"{_are_left_out(every)}, without an effect on training",
            (every[0][0].key_label(),),
            tuple(reasons(every)),
        )


def with_effect(every: Sequence[tuple[Place, str]]) -> Iterator[Diagnostic]:
    """One warning about all omissions that change the run, with the effect of each key."""
    if every:
        yield Diagnostic(
            "not-carried-over",
            "warning",
            f"{_are_left_out(every)}, so the new run may differ",
            tuple(place.key_label("left behind") for place, _ in every),
            tuple(reasons(every)),
            help="check the new run, or silence this with --without KEY",
        )


def in_part(every: Iterable[CarriedKey]) -> Iterator[Diagnostic]:
    """A warning for each carried key that the new program only follows in part.

    Keys that are written and left out have their account.
    """
    for each in every:
        is_absent = each.read.key not in each.read.place.document.flat
        if each.apart and (each.keys or is_absent):
            choice = "".join(f", or give --set {slot}=VALUE" for slot in each.slots[:1])
            yield Diagnostic(
                "not-carried-over",
                "warning",
                each.apart,
                (Label("", each.read.place.document.start(), each.slots[0] if each.slots else ""),),
                help=f"check the new run{choice}",
            )


def _are_left_out(every: Sequence[tuple[Place, str]]) -> str:
    paths = list(dict.fromkeys(place.path for place, _ in every))
    return f"{joined(paths, 'and')} {'is' if len(every) == 1 else 'are'} left out"


def reasons(every: Iterable[tuple[Place, str]]) -> Iterator[str]:
    """Each reason once, with its keys."""
    found: dict[str, dict[str, None]] = {}
    for place, why in every:
        found.setdefault(why, {})[f"{place.path} {shown(place.value)}"] = None
    yield from (f"{', '.join(keys)}: {why}" for why, keys in found.items())
