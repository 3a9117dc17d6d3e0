"""Ends a command that runs other programs when it receives a signal."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a termination signal end the child processes, as Ctrl-C does, and then tunec."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if current_thread() is not main_thread():
        yield  # a server asks, which minds signals itself
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
