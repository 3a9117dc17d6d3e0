"""Builds pairs in several processes; each takes a run of one spec's pairs at a time.

Cached results of a spec serve its other clusters and are dropped with it, so runs are as long as
possible while each process still gets a few. A process writes its pairs to its own part of the
lock, and reports finished pairs to its parent.
"""

import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from multiprocessing.connection import Connection, wait
from multiprocessing.sharedctypes import Synchronized
from typing import Final, NamedTuple

from msgspec import Struct

from tunec.compiler.fleet.lock import adding
from tunec.compiler.fleet.pair import Builder
from tunec.compiler.fleet.pairing import Task
from tunec.compiler.version import __version__

_RUNS_EACH: Final = 4
"""The least number of runs per process, so that all processes end at about the same time."""
_TOLD: Final = 16
"""Finished pairs that are reported at once, so that reporting costs almost nothing."""
_PARENT_SECONDS: Final = 0.2
_COLLECTING: Final = (1_000_000, 20, 100)
"""Thresholds of the garbage collector. Most objects of a pair are freed at once, and the rest lives
until its spec is done, so collecting earlier is wasted."""


class ProcessEnded(RuntimeError):
    """A process ended early: it was killed, possibly by the system for lack of memory."""


class Done(NamedTuple):
    """What is reported of a finished pair."""

    place: int
    """Among those that are pending."""
    ok: bool
    strays: tuple[str, ...]
    """As `BuiltPair` has them."""


class Shared(Struct, frozen=True):
    """What all processes of a build are given."""

    builder: Builder
    pending: Sequence[Task]
    runs: Sequence[range]
    """Places of pairs that follow each other, of one spec."""
    taken: "Synchronized[int]"
    """How many runs somebody has begun."""

    def next_run(self) -> range | None:
        """A run that has not begun; None: there are no more."""
        with self.taken.get_lock():
            at = self.taken.value
            self.taken.value += 1
        return self.runs[at] if at < len(self.runs) else None

    def built(self, place: int, add: Callable[[str], None]) -> Done:
        """Build a pair by its place."""
        return one_built(self.builder, place, self.pending[place], add)


def is_worth_sharing(pending: Sequence[Task]) -> bool:
    """Whether there are enough pairs for more than one process."""
    return len(pending) >= 2 * _TOLD


def built_by(jobs: int, builder: Builder, pending: Sequence[Task]) -> Iterator[Done]:
    """Build pairs in some processes; say of each that it is done, in no order.

    Raises what one of them raised; Ended for one that was ended from without.
    """
    taken = multiprocessing.Value("l", 0)
    shared = Shared(builder, pending, tuple(_runs(pending, jobs)), taken)
    started = [_started(shared, number) for number in range(min(jobs, len(shared.runs)))]
    processes = [process for process, _ in started]
    listening = [end for _, end in started]
    try:
        while listening:
            ready = wait(listening)
            for end in [each for each in listening if each in ready]:
                told = _received(end)
                if told is None:
                    listening.remove(end)
                elif isinstance(told, BaseException):
                    raise told
                else:
                    yield from told
        for process in processes:
            process.join()
            if process.exitcode:
                raise ProcessEnded(
                    f"a process of the build was ended: exit code {process.exitcode}"
                )
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _runs(pending: Sequence[Task], jobs: int) -> Iterator[range]:
    most = max(_TOLD, len(pending) // (_RUNS_EACH * jobs))
    start = 0
    for _, of_spec in groupby(pending, lambda task: task[0]):
        end = start + sum(1 for _ in of_spec)
        count = -(-(end - start) // most)
        bounds = [start + (end - start) * at // count for at in range(count + 1)]
        yield from map(range, bounds, bounds[1:])
        start = end


def _started(shared: Shared, number: int) -> tuple[multiprocessing.Process, Connection]:
    """A process that builds, and the end of the pipe on which it reports."""
    here, there = multiprocessing.Pipe(duplex=False)
    given = shared, number, there, os.getpid()
    process = multiprocessing.Process(target=_work, args=given, daemon=True)
    process.start()
    there.close()
    return process, here


def _received(end: Connection) -> Sequence[Done] | BaseException | None:
    """What a process reports; None: it reports no more."""
    try:
        found: Sequence[Done] | BaseException = end.recv()
    except EOFError:
        return None
    return found


# ── in a process ─────────────────────────────────────────────────────────────────────────────────


def _work(shared: Shared, number: int, line: Connection, parent: int) -> None:
    """Build one run after the other."""
    gc.freeze()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        with seldom_collecting(), adding(shared.builder.folder, __version__, number) as add:
            for run in iter(shared.next_run, None):
                for at in range(run.start, run.stop, _TOLD):
                    some = range(at, min(at + _TOLD, run.stop))
                    line.send([shared.built(place, add) for place in some])
    except KeyboardInterrupt:
        pass  # the process that began this one was interrupted too
    except Exception as fault:  # noqa: BLE001  it is raised where somebody can tell of it
        line.send(fault)


def one_built(builder: Builder, place: int, task: Task, add: Callable[[str], None]) -> Done:
    """Build a pair, and add its line."""
    built = builder.build(*task)
    add(built.line)
    return Done(place, built.ok, built.strays)


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Let garbage be looked for as seldom as pairs make it."""
    before = gc.get_threshold()
    gc.set_threshold(*_COLLECTING)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _end_with(parent: int) -> None:
    """End this process when its parent was killed: nobody else would."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os._exit(1)
