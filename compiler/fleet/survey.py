"""What a build has to do: compare each pair's inputs with the lock, and its files with the tree.

The lock is read once, in one process; the files that it lists are looked at in several.
"""

import json
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from msgspec import Struct

from tunec.compiler.fleet.drift import strays
from tunec.compiler.fleet.lock import TreeState, fold_parts, lock_lines, tidy, tree_state, vouch
from tunec.compiler.fleet.pair import Builder
from tunec.compiler.fleet.pairing import Task, beside, tasks
from tunec.compiler.review.outcome import Pair
from tunec.compiler.version import __version__

_MANY: Final = 2_000
"""Pairs from which on it takes longer to look at their files than to start processes."""
_BATCH: Final = 256
"""Pairs that a process looks at before it tells of them."""


Strays = Mapping[Pair, tuple[str, ...]]
"""Files that lie in the directories of pairs, by their paths below these, and belong to none."""


class Work(Struct, frozen=True):
    """What a build has to do."""

    builder: Builder
    pending: Sequence[Task]
    """Pairs that are missing or stale, in the order of the lock."""
    fresh: int
    """Pairs that are as they should be."""
    dropped: int
    """Pairs of the lock that the fleet does not select any more."""
    strays: Strays
    """Of the pairs that are as they should be."""

    @property
    def changes(self) -> bool:
        """Whether there is anything to do, in the tree or in the lock."""
        return bool(self.pending or self.dropped)


class _Claim(NamedTuple):
    """What the lock says of a pair's files, as it is handed to the process that looks at them."""

    where: str
    """The pair's directory below the tree; empty where the fleet does not select the pair."""
    artifacts: str
    """As JSON; empty where the lock has no pair that was made from the same."""


_DROPPED: Final = _Claim("", "")


class _Seen(NamedTuple):
    """What became of a claim."""

    is_selected: bool
    strays: tuple[str, ...] | None
    """Files that belong to nobody; None where the pair is not as it should be."""


def survey(builder: Builder, jobs: int) -> Work:
    """Find what is stale, looking at files in several processes where there are many."""
    tidy(builder.folder)
    fold_parts(builder.folder, __version__)
    now = time.time_ns()
    selected = tasks(builder.reader.selection)
    pending: list[Task] = []
    left_over: dict[Pair, tuple[str, ...]] = {}
    fresh = dropped = 0
    for found in _seen(builder, jobs):
        if not found.is_selected:
            dropped += 1
            continue
        task = next(selected)
        if found.strays is None:
            pending.append(task)
            continue
        fresh += 1
        if found.strays:
            left_over[Pair(task[0], task[1].name)] = found.strays
    work = Work(builder, pending, fresh, dropped, left_over)
    if not work.changes:
        vouch(builder.folder, now, alone=not left_over)
    return work


def _seen(builder: Builder, jobs: int) -> Iterator[_Seen]:
    """What became of every pair of the fleet and of the lock, in their order."""
    look = partial(_looked_at, os.fspath(builder.folder), tree_state(builder.folder))
    batches = _batches(_claims(builder))
    if jobs <= 1 or builder.reader.selection.pairs < _MANY:
        for batch in batches:
            yield from look(batch)
        return
    with multiprocessing.Pool(jobs) as pool:
        for found in pool.imap(look, batches):
            yield from found


def _claims(builder: Builder) -> Iterator[_Claim]:
    reader = builder.reader
    for task, line in beside(tasks(reader.selection), lock_lines(builder.folder)):
        if task is None:
            yield _DROPPED
            continue
        spec, site = task
        is_alike = line is not None and line.text.startswith(reader.opening(spec, site))
        yield _Claim(f"{spec}/{site.name}", line.artifacts() if line and is_alike else "")


def _batches(claims: Iterator[_Claim]) -> Iterator[list[_Claim]]:
    while batch := list(islice(claims, _BATCH)):
        yield batch


def _looked_at(root: str, said: TreeState, claims: Iterable[_Claim]) -> list[_Seen]:
    """Look at the files of some pairs, if they have to be; see `strays`."""
    return [_Seen(bool(each.where), _strays(root, said, each)) for each in claims]


def _strays(root: str, said: TreeState, claim: _Claim) -> tuple[str, ...] | None:
    try:
        artifacts = json.loads(claim.artifacts)
    except (ValueError, RecursionError):
        return None
    return strays(f"{root}/{claim.where}", artifacts, said)
