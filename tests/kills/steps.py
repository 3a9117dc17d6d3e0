"""Kill what writes at one of its steps, counted and not timed: before a call, or half done."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tunec.compiler import writing

CALLS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.utime")
"""Audit events, raised before the call; of `open`, those that write."""


def is_killed(work: Callable[[], object], step: int) -> bool:
    """Do some work in a process that is killed at a step; whether it came so far."""
    return ended(work, step, signal.SIGKILL) == -signal.SIGKILL


def ended(work: Callable[[], object], step: int, by: int) -> int:
    """Do some work in a process that gets a signal at a step.

    Its exit code, which is what the work returns; or the number of the signal that ended it, below
    zero.
    """
    child = os.fork()
    if child == 0:
        code: object = 1
        try:
            _signal_at(step, by)
            with Path(os.devnull).open("w") as nowhere:
                sys.stdout = sys.stderr = nowhere
                code = work()
        finally:
            os._exit(code if isinstance(code, int) else 0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def steps_of(work: Callable[[], object]) -> int:
    """In how many steps some work writes; it is done in another process."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        seen = 0

        def count() -> bool:
            nonlocal seen
            seen += 1
            return False

        try:
            _watch(count)
            with Path(os.devnull).open("w") as nowhere:
                sys.stdout = sys.stderr = nowhere
                work()
            _WRITE(there, str(seen).encode())
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as told:
        found = int(told.read())
    os.waitpid(child, 0)
    return found


_WRITE, _SYNC = os.write, os.fsync


def _signal_at(step: int, by: int) -> None:
    left = step

    def is_next() -> bool:
        nonlocal left
        left -= 1
        return left == -1

    _watch(is_next, by)


def _watch(is_it: Callable[[], bool], by: int = signal.SIGKILL) -> None:
    """Ask before each step of this process, for good, and send a signal at the one that it is."""

    def write(handle: int, content: memoryview) -> int:
        if is_it():
            _WRITE(handle, content[: len(content) // 2])
            os.kill(os.getpid(), by)
        return _WRITE(handle, content)

    def sync(handle: int) -> None:
        if is_it():
            os.kill(os.getpid(), by)
        _SYNC(handle)

    def hear(event: str, details: tuple[object, ...]) -> None:
        is_step = event in CALLS
        if event == "open":
            flags = details[2]
            is_step = isinstance(flags, int) and bool(
                flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            )
        if is_step and is_it():
            os.kill(os.getpid(), by)

    writing.os.write, writing.os.fsync = write, sync  # type: ignore[assignment]
    sys.addaudithook(hear)
