"""processes: a script to its end in an environment, within its time, and nothing left of it.

The first is started plainly. Those after it are forked by a server that has torch loaded already
(fork_server.py), where the system can fork: a consumer then starts in a third of the time.
"""

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from tunec.compiler.consumers import fork_server
from tunec.compiler.consumers.environments import Environment, EnvironmentUnavailable, prepare

_CAN_FORK: Final = sys.platform == "linux"
"""Elsewhere a fork without an exec is not safe (macOS) or not there (Windows)."""


@dataclass(frozen=True, slots=True)
class Script:
    """One run: the arguments after the interpreter's flags, what it is told, and where it works.

    Its output is appended to the file `output`, which is there already; it may take `seconds`.
    """

    arguments: Sequence[str]
    variables: Mapping[str, str]
    folder: Path
    input: Path
    output: Path
    seconds: float


def run(environment: Environment, script: Script) -> int | None:
    """The exit status, or None when the time ran out and the whole process group was killed."""
    with _SERVERS.free(script.variables) as server, suppress(_ServerGone):
        if server is not None:
            return server.run(environment, script)
    return _run_plainly(environment, script)


def _run_plainly(environment: Environment, script: Script) -> int | None:
    with script.input.open("rb") as told, script.output.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603
            [str(environment.python), "-s", "-P", *script.arguments],
            stdin=told,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=script.folder,
            env=dict(script.variables),
            start_new_session=True,
        )
    try:
        return process.wait(timeout=script.seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        return None
    except BaseException:
        _kill(process)
        raise


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process with all its children: it leads a session, hence a group, of its own."""
    if hasattr(os, "killpg"):
        _kill_group(process.pid)
    else:
        process.kill()
    process.wait()


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


class _ServerGone(Exception):
    """The server ended without an answer."""


class _Server:
    """The server's process, and what is said to it; one run at a time."""

    def __init__(self, bare: Environment, variables: Mapping[str, str]) -> None:
        self.owner = os.getpid()
        self._process = subprocess.Popen(  # noqa: S603
            [str(bare.python), "-s", "-P", fork_server.__file__],
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

    def run(self, environment: Environment, script: Script) -> int | None:
        """As the function `run`. Raises _ServerGone."""
        child = 0
        try:
            self._ask(environment, script)
            child = self._number()  # once torch is loaded: that is not the script's time
            if not self._speaks(script.seconds):
                _kill_group(child)
                self._number()
                return None
            return self._number()
        except BaseException:
            if child:
                _kill_group(child)
            self.end()
            raise

    def end(self) -> None:
        """Kill it; a process that it forked and nobody knows of yet ends by itself (runner.py)."""
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    pipe.close()

    def _ask(self, environment: Environment, script: Script) -> None:
        request = {
            "arguments": list(script.arguments),
            "environment": dict(script.variables),
            "folder": str(script.folder),
            "input": str(script.input),
            "output": str(script.output),
            "packages": str(environment.packages),
            "python": str(environment.python),
            "prefix": str(environment.root),
        }
        try:
            self._pipe(self._process.stdin).write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError as gone:
            raise _ServerGone from gone

    def _speaks(self, seconds: float) -> bool:
        return bool(select.select([self._pipe(self._process.stdout)], [], [], seconds)[0])

    def _number(self) -> int:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise _ServerGone
        return int(line)

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        if pipe is None:
            raise _ServerGone
        return pipe


class _Servers:
    """The server of this process: begun with the second script, since one is no quicker by it."""

    def __init__(self) -> None:
        self._server: _Server | None = None
        self._runs = 0
        self._one_run = threading.Lock()
        atexit.register(self.end)

    def end(self) -> None:
        """End the server, if one was begun."""
        if self._server is not None:
            self._server.end()

    @contextmanager
    def free(self, variables: Mapping[str, str]) -> Iterator[_Server | None]:
        """The server for one run; None where there is none or it is at work."""
        self._runs += 1
        if not _CAN_FORK or self._runs == 1 or not self._one_run.acquire(blocking=False):
            yield None
            return
        try:
            yield self._begun(variables)
        finally:
            self._one_run.release()

    def _begun(self, variables: Mapping[str, str]) -> _Server | None:
        if self._server is None or not self._server.lives:
            try:
                self._server = _Server(prepare(()), variables)
            except (EnvironmentUnavailable, OSError):
                return None
        return self._server


_SERVERS: Final = _Servers()
