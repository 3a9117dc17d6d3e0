"""Rows and schemas of files that are read and never written."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Dialect, Entry, Json, in_every_plan

Read = Callable[[Mapping[str, Json]], Mapping[str, Any]]


def observed(
    keys: Sequence[str],
    slots: Sequence[str],
    read: Read,
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    absent: Mapping[str, Any] | None = None,
    package: str = "",
    when: Callable[[Plan], bool] = in_every_plan,
) -> Entry:
    """A row that is read and never written; `absent` holds in every release that has the keys."""
    defaults = ((ALWAYS, absent),) if absent is not None else ()
    return Entry(
        tuple(keys),
        tuple(slots),
        lambda _: {},
        read,
        source,
        since,
        until,
        defaults,
        when=when,
        package=package,
    )


_NOTHING: Final = object()


def as_it_is(key: str, slot: str, source: str, usual: Any = _NOTHING) -> Entry:
    """A key with the slot's own value; `usual` is the slot's value if the key is missing."""
    absent = None if usual is _NOTHING else {slot: usual}
    return observed((key,), (slot,), lambda found: {slot: found[key]}, source, absent=absent)


def schema_of(folder: str, releases: Sequence[str], package: str) -> Callable[[Dialect], str]:
    """Select the schema of the newest known release that is not newer than the dialect's.

    If every known release is newer, select the oldest one's.
    """
    known = sorted(Version(text) for text in releases)

    def find(dialect: Dialect) -> str:
        fitting = [each for each in known if each <= dialect[package]]
        return f"{folder}/{max(fitting, default=known[0])}.json"

    return find


def named_word(words: Mapping[str, Any], key: str, slot: str) -> Read:
    """A reader of one key: each known word stands for a slot's value, others set nothing."""

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        word = found[key]
        return {slot: words[word]} if isinstance(word, str) and word in words else {}

    return read


def means_every_layer(targets: Json) -> bool:
    """Whether PEFT's `target_modules` means all linear layers: the word alone, or in a list."""
    return targets in ("all-linear", ["all-linear"])


def split_names(value: Json) -> tuple[str, ...]:
    """Names from a list or from comma-separated text."""
    names = value.split(",") if isinstance(value, str) else value
    return tuple(str(name).strip() for name in names or () if str(name).strip())
