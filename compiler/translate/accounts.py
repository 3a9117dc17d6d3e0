"""What became of every key that was read: none is left out without a reason, or an error."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from tunec.compiler.consumers.moved_keys import MOVED, Moved
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import joined, shown
from tunec.compiler.translate.admission import PACKAGES, is_ignored
from tunec.compiler.translate.leftovers import Read
from tunec.compiler.translate.sources import Sources
from tunec.compiler.translate.writing import Written

Outcome = Literal["said", "kept", "absent", "harmless", "other", "lost"]
"""Said by slots; in the new files; null, as if it were absent; left out, and the run is the same;
left out, and something else happens, which is told; or left out, and nobody knows what follows."""


class Account(Struct, frozen=True):
    """A key that was read, and what became of it."""

    read: Read
    outcome: Outcome
    why: str = ""
    """Why it is not in the new files."""

    @property
    def path(self) -> str:
        """The key as the file has it."""
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
    """What became of each key of the files, once the new ones are written."""
    files = tuple(written)
    kept = {_named(each.read): bool(each.keys) for one in files for each in one.kept}
    there = frozenset(key for one in files for key in one.keys)
    return tuple(_account(read, sources, kept, there) for read in sources.reads)


def _account(
    read: Read,
    sources: Sources,
    kept: Mapping[tuple[str, str], bool],
    there: frozenset[tuple[str, str]],
) -> Account:
    file = read.place.document.file
    is_there = file is not None and (file.name, read.key) in there
    if read.fate in ("said", "file") or sources.is_phrase(read.place):
        return Account(read, "said")
    if kept.get(_named(read)) or (read.fate != "left" and is_there):
        return Account(read, "kept")
    if _named(read) in kept:
        return Account(read, "harmless", _UNSAID["default"])
    if read.fate == "default" and read.place.value is None:
        return Account(read, "absent")
    moved = next(_given_up(read), None)
    if moved is None and read.fate in _UNSAID:
        return Account(read, "harmless", _UNSAID[read.fate])
    if moved is None:
        is_unread = is_ignored(read.place.document, sources.run, read.key)
        return Account(read, "other", _IGNORED) if is_unread else Account(read, "lost")
    is_same = moved.changes_nothing(read.place.value)
    return Account(read, "harmless" if is_same else "other", moved.instead)


def _named(read: Read) -> tuple[str, str]:
    return read.place.document.name, read.key


def _given_up(read: Read) -> Iterator[Moved]:
    """What is known of a key that has no successor."""
    document = read.place.document
    leaves = document.file.leaves if document.file is not None else ()
    tables = (leaves, *(MOVED[package] for package in PACKAGES.get(document.kind, ())))
    for table in tables:
        yield from (each for each in table if each.instead and is_within(read.key, each.old))


def is_within(key: str, other: str) -> bool:
    """Whether a key is another one, or lies in it."""
    return key == other or key.startswith(f"{other}.")


# ── what is to be said of them ───────────────────────────────────────────────────────────────────


def left_out(every: Sequence[Account]) -> Iterator[Diagnostic]:
    """What is left out and known to be harmless, in one note, and what changes, in one warning."""
    harmless = [each for each in every if each.outcome == "harmless"]
    other = [each for each in every if each.outcome == "other"]
    if harmless:
        verb = "is" if len(harmless) == 1 else "are"
        yield Diagnostic(
            "left-out",
            "note",
            f"{joined(_paths(harmless), 'and')} {verb} left out, without an effect on training",
            (harmless[0].read.place.key_label(),),
            tuple(_reasons(harmless)),
        )
    if other:
        verb = "is" if len(other) == 1 else "are"
        yield Diagnostic(
            "not-carried-over",
            "warning",
            f"{joined(_paths(other), 'and')} {verb} left out, so the new run may differ",
            tuple(each.read.place.key_label("left behind") for each in other),
            tuple(_reasons(other)),
            help="check the new run, or silence this with --without KEY",
        )


def _paths(every: Iterable[Account]) -> list[str]:
    return list(dict.fromkeys(each.path for each in every))


def _reasons(every: Iterable[Account]) -> Iterator[str]:
    """Each reason once, with the keys that it is for."""
    reasons: dict[str, dict[str, None]] = {}
    for each in every:
        said = f"{each.path} {shown(each.read.place.value)}"
        reasons.setdefault(each.why, {})[said] = None
    yield from (f"{', '.join(keys)}: {why}" for why, keys in reasons.items())
