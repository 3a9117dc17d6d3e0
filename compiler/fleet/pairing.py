"""The pairs of a fleet beside the lines of its lock: two sorted streams, read in parallel."""

from collections.abc import Iterator
from typing import TypeVar

from tunec.compiler.fleet.lock import Line, LockedPair
from tunec.compiler.fleet.selection import Selection, Site
from tunec.compiler.review.outcome import Pair

Task = tuple[str, Site]
"""A spec's name, and a cluster."""
_L = TypeVar("_L", Line, LockedPair)


def tasks(selection: Selection) -> Iterator[Task]:
    """Every pair of a fleet, in the lock's order."""
    return ((spec, site) for spec in selection.specs for site in selection.sites)


def beside(tasks: Iterator[Task], lock: Iterator[_L]) -> Iterator[tuple[Task | None, _L | None]]:
    """Each task with its line of the lock, and each line that has no task; both come sorted."""
    task, locked = next(tasks, None), next(lock, None)
    while task is not None or locked is not None:
        name = Pair(task[0], task[1].name) if task is not None else None
        if name is None or (locked is not None and locked.pair < name):
            yield None, locked
            locked = next(lock, None)
        elif locked is None or name < locked.pair:
            yield task, None
            task = next(tasks, None)
        else:
            yield task, locked
            task, locked = next(tasks, None), next(lock, None)
