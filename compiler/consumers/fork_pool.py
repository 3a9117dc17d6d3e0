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
"""Elsewhere a fork without an exec is unsafe (macOS) or unavailable (Windows)."""


class ServerGone(Exception):
    """The server ended without an answer."""


class Server:
    """The server's process and the pipes to it; it handles one run at a time.

    `python` is an interpreter with its flags, `variables` is the environment in which the server
    loads modules. The server ends when the process that made it ends, however that happens.
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
        """Whether the server runs and belongs to this process, not to one it was forked from."""
        return self.owner == os.getpid() and self._process.poll() is None

    def run(self, request: Mapping[str, Any], seconds: float) -> int | None:
        """The exit status of one process, or None if it was killed after `seconds`.

        The time starts when the modules are loaded. Raises ServerGone.
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
        """Request one process; the server replies with its process number, then its exit status.

        `fork_server.py` lists the request's keys. Raises ServerGone.
        """
        try:
            self._pipe(self._process.stdin).write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError as gone:
            raise ServerGone from gone

    def answer(self, seconds: float) -> int | None:
        """The next number, or None if it does not arrive within `seconds`.

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
        """Kill the server; processes that it forked end by themselves once their parent is gone."""
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
    """Kill a process that leads a process group, with all of the group."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
