"""The row that targets of trainers write: keys and slots both ways, and what absence means."""

from collections.abc import Callable, Mapping
from typing import Any

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, in_every_plan


def row(
    keys: tuple[str, ...],
    slots: tuple[str, ...],
    write: Callable[[Plan], Mapping[str, Json]],
    read: Callable[[Mapping[str, Json]], Mapping[str, Any]],
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    absent: Mapping[str, Any] | None = None,
    when: Callable[[Plan], bool] = in_every_plan,
    yields: bool = False,
) -> Entry:
    """A row that is read and written; `absent` holds in every release with the keys."""
    defaults = ((ALWAYS, absent),) if absent is not None else ()
    return Entry(keys, slots, write, read, source, since, until, defaults, when=when, yields=yields)
