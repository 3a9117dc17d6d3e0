"""A server that loads modules once, and the processes that it forks (fork_server.py)."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final

from tunec.compiler.consumers import fork_server

CAN_FORK: Final = sys.platform == "linux"
"""Elsewhere a fork without an exec is not safe (macOS) or not there (Windows)."""


class ServerGone(Exception):
    """The server ended without an answer."""


class Server:
    """The server's process, and what is said to it; one run at a time.

    `python` is an interpreter and its flags, `variables` the environment in which it loads modules.
    It ends with the process that made it, in whatever way that ends.
    """

    def __init__(self, python: Sequence[str], variables: Mapping[str, str]) -> None:
        self.owner = os.getpid()
        self._process = subprocess.Popen(  # noqa: S603
            [*python, fork_server.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(variables),
            start_new_session=True,
            bufsize=0,
        )

    @property
    def lives(self) -> bool:
        """Whether it is this process's own, not that of one it was forked from, and runs."""
        return self.owner == os.getpid() and self._process.poll() is None

    def run(self, request: Mapping[str, Any], seconds: float) -> int | None:
        """The exit status of one process, or None where it was killed after so many seconds.

        The time begins when the modules are loaded. Raises ServerGone.
        """
        child = 0
        try:
            self.ask(request)
            child = self._number()
            status = self.answer(seconds)
            if status is None:
                kill_group(child)
                self._number()
        except BaseException:
            if child:
                kill_group(child)
            self.end()
            raise
        return status

    def ask(self, request: Mapping[str, Any]) -> None:
        """Ask for one process; two numbers answer, its own and its exit status.

        The request's keys are those that `fork_server.py` names. Raises ServerGone.
        """
        try:
            self._pipe(self._process.stdin).write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError as gone:
            raise ServerGone from gone

    def answer(self, seconds: float) -> int | None:
        """The next number, or None where it does not come in so many seconds.

        Raises ServerGone.
        """
        told = self._pipe(self._process.stdout)
        return self._number() if select.select([told], [], [], seconds)[0] else None

    def _number(self) -> int:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise ServerGone
        return int(line)

    def end(self) -> None:
        """Kill it; what it forked ends by itself, once its parent is gone."""
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    pipe.close()

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        if pipe is None:
            raise ServerGone
        return pipe


def kill_group(leader: int) -> None:
    """Kill a process with all its children, where it leads a group of its own."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
