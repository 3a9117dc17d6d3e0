"""Building a fleet: what is stale is compiled, in parallel, in order; the rest is left alone.

Whatever is interrupted, each file is the old or the new one, the lock says nothing that is not so,
and the next build finishes the rest.
"""

import gc
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tunec.compiler.fleet.drift import Drift, inside, strays
from tunec.compiler.fleet.lock import (
    PART,
    Line,
    fold,
    lock_lines,
    opening,
    part,
    sweep,
    untouched_since,
    vouch,
    write_lock,
)
from tunec.compiler.fleet.pair import Builder, Built
from tunec.compiler.fleet.pairing import Task, beside, tasks
from tunec.compiler.fleet.selection import Site
from tunec.compiler.version import __version__

_CHUNK: Final = 16
"""Pairs handed to a process at once: enough that the way there costs nothing."""
_PARENT_SECONDS: Final = 0.2
_PLANNING: Final = ("tunec.compiler.analyses.", "tunec.compiler.passes.")
_MUCH: Final = 256
_COLLECTING: Final = (200_000, 20, 100)
"""Objects after which those of each generation are looked through. Of what a pair makes most goes
by itself, and the rest stays until its spec is done: to look through it before is for nothing."""
_YOUNG: Final = 0
"""The generation of what was made since the last collection."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a build has to do."""

    builder: Builder
    pending: Sequence[Task]
    """Pairs that are missing or stale, in the order of the lock."""
    fresh: int
    """Pairs that are as they should be."""
    dropped: int
    """Pairs of the lock that the fleet does not select any more."""
    orphans: Sequence[Drift]
    """Files that were seen in the directories of fresh pairs and belong to none."""

    @property
    def changes(self) -> bool:
        """Whether there is anything to do, in the tree or in the lock."""
        return bool(self.pending or self.dropped)


def survey(builder: Builder) -> Work:
    """Find what is stale: compare each pair's inputs with the lock, and its files with the tree."""
    sweep(builder.folder)
    _fold_part(builder.folder)
    pending: list[Task] = []
    seen: list[Drift] = []
    fresh = dropped = 0
    now, since = time.time_ns(), untouched_since(builder.folder)
    for task, line in beside(tasks(builder.reader.selection), lock_lines(builder.folder)):
        if task is None:
            dropped += 1
            continue
        found = None if line is None else _strays(builder, task, line, since)
        if found is None:
            pending.append(task)
        else:
            fresh += 1
            seen += inside(f"{task[0]}/{task[1].name}", found)
    work = Work(builder, pending, fresh, dropped, seen)
    if not work.changes:
        vouch(builder.folder, now)
    return work


def build(work: Work, jobs: int, tell: Callable[[Built], None]) -> None:
    """Compile what is pending, `jobs` pairs at a time; `tell` hears of each as it is done."""
    folder, pending = work.builder.folder, {(spec, site.name) for spec, site in work.pending}
    names = (
        {(spec, site.name) for spec, site in tasks(work.builder.reader.selection)}
        if work.dropped
        else None
    )

    def stays(each: Line) -> bool:
        key = (each.pair.spec, each.pair.cluster)
        return key not in pending and (names is None or key in names)

    with part(folder, __version__) as add:
        write_lock(folder, __version__, filter(stays, lock_lines(folder)))
        for built in _results(work, jobs):
            add(built.line)
            tell(built)
        fold(folder, __version__)


def _fold_part(folder: Path) -> None:
    """Put what an interrupted build had finished into the lock."""
    if (folder / PART).exists():
        fold(folder, __version__)
        (folder / PART).unlink()


def _strays(builder: Builder, task: Task, line: Line, since: int) -> tuple[str, ...] | None:
    """Files beside those of a fresh pair; None where the pair is not fresh."""
    spec, site = task
    if not line.text.startswith(opening(line.pair, builder.reader.inputs(spec, site))):
        return None
    return strays(builder.folder / spec / site.name, line.artifacts(), since)


# ── processes ────────────────────────────────────────────────────────────────────────────────────


def _results(work: Work, jobs: int) -> Iterator[Built]:
    if jobs <= 1 or len(work.pending) < 2 * _CHUNK:
        with _seldom_collecting():
            yield from (_built(work.builder, spec, site) for spec, site in work.pending)
        return
    sites = {site.name: at for at, site in enumerate(work.builder.reader.selection.sites)}
    told = ((spec, sites[site.name]) for spec, site in work.pending)
    with multiprocessing.Pool(jobs, _Worker.start, (work.builder, os.getpid())) as pool:
        yield from pool.imap(_Worker.run, told, chunksize=_CHUNK)


def _built(builder: Builder, spec: str, site: Site) -> Built:
    if builder.emissions.begin(spec):
        _forget_plans()
        gc.collect(_YOUNG)  # what the spec before made: of the rest nothing has become free
    return builder.build(spec, site)


def _forget_plans() -> None:
    """Empty the caches of planning that hold much: it is of the spec before."""
    for name, module in tuple(sys.modules.items()):
        for each in vars(module).values() if name.startswith(_PLANNING) else ():
            told = getattr(each, "cache_info", None)
            if told is not None and told().currsize > _MUCH:
                each.cache_clear()


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTING)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass
class _Worker:
    """What a process of the pool keeps: reading the catalogue and the specs once."""

    builder: Builder | None = field(default=None)

    @staticmethod
    def start(builder: Builder, parent: int) -> None:
        _WORKER.builder = builder
        gc.set_threshold(*_COLLECTING)
        gc.freeze()
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()

    @staticmethod
    def run(task: tuple[str, int]) -> Built:
        """Build the pair of a spec and the cluster at an index: less to tell than the cluster."""
        if _WORKER.builder is None:
            raise RuntimeError("the process was not started by a build")
        spec, at = task
        return _built(_WORKER.builder, spec, _WORKER.builder.reader.selection.sites[at])


_WORKER: Final = _Worker()


def _end_with(parent: int) -> None:
    """End this process when its parent was killed: nobody else would."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(1)
