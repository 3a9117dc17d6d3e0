"""Builds a fleet: compiles stale pairs in parallel, reports them in order, and skips the rest.

Whenever a build is interrupted, each file is either old or new, the lock is true, and the next
build finishes the rest.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from tunec.compiler.fleet.lock import Line, adding, fold, lock_lines, part, write_lock
from tunec.compiler.fleet.pairing import tasks
from tunec.compiler.fleet.processes import (
    Done,
    built_by,
    is_worth_sharing,
    one_built,
    seldom_collecting,
)
from tunec.compiler.fleet.survey import Strays, Work
from tunec.compiler.review.outcome import Pair
from tunec.compiler.version import __version__


class Listener(Protocol):
    """Receives the progress of a build."""

    def done(self) -> None:
        """One more pair is finished."""
        ...

    def failed(self, pair: Pair) -> None:
        """A pair was not written, since it does not fit or cannot be expressed.

        Called in the lock's order.
        """
        ...


def build(work: Work, jobs: int, listener: Listener) -> Strays:
    """Compile pending pairs, `jobs` at a time; return stray files in the directories of pairs."""
    folder, pending = work.builder.folder, {(spec, site.name) for spec, site in work.pending}
    names = (
        {(spec, site.name) for spec, site in tasks(work.builder.reader.selection)}
        if work.dropped
        else None
    )

    def stays(each: Line) -> bool:
        return each.pair not in pending and (names is None or each.pair in names)

    left_over = dict(work.strays)
    with part(folder, __version__):
        write_lock(folder, __version__, filter(stays, lock_lines(folder)))
        for done in _in_order(_built(work, jobs), listener):
            spec, site = work.pending[done.place]
            pair = Pair(spec, site.name)
            if not done.ok:
                listener.failed(pair)
            if done.strays:
                left_over[pair] = done.strays
        fold(folder, __version__, alone=not left_over)
    return left_over


def _built(work: Work, jobs: int) -> Iterator[Done]:
    if jobs > 1 and is_worth_sharing(work.pending):
        yield from built_by(jobs, work.builder, work.pending)
        return
    with seldom_collecting(), adding(work.builder.folder, __version__) as add:
        for place, task in enumerate(work.pending):
            yield one_built(work.builder, place, task, add)


def _in_order(found: Iterable[Done], listener: Listener) -> Iterator[Done]:
    """Pairs in their order, each as soon as all before it are finished."""
    ahead: dict[int, Done] = {}
    at = 0
    for done in found:
        listener.done()
        ahead[done.place] = done
        while at in ahead:
            yield ahead.pop(at)
            at += 1
