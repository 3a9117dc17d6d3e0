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
    child = os.fork()
    if child == 0:
        try:
            _kill_at(step)
            with Path(os.devnull).open("w") as nowhere:
                sys.stdout = sys.stderr = nowhere
                work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


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


def _kill_at(step: int) -> None:
    left = step

    def is_next() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    _watch(is_next)


def _watch(is_last: Callable[[], bool]) -> None:
    """Ask before each step of this process, for good, and kill it at the last one."""

    def write(handle: int, content: memoryview) -> int:
        if is_last():
            _WRITE(handle, content[: len(content) // 2])
            _end()
        return _WRITE(handle, content)

    def sync(handle: int) -> None:
        if is_last():
            _end()
        _SYNC(handle)

    def hear(event: str, details: tuple[object, ...]) -> None:
        is_step = event in CALLS
        if event == "open":
            flags = details[2]
            is_step = isinstance(flags, int) and bool(
                flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            )
        if is_step and is_last():
            _end()

    writing.os.write, writing.os.fsync = write, sync  # type: ignore[assignment]
    sys.addaudithook(hear)


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
