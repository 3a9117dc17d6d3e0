"""Runs a script in an environment to its end, within a time limit, and leaves nothing behind.

The first script is started plainly. If the system can fork, later ones are forked by a server that
has loaded torch already (fork_server.py): a consumer then starts in a third of the time.
"""

import atexit
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunec.compiler.consumers.environments import Environment, EnvironmentUnavailable, prepare
from tunec.compiler.consumers.fork_pool import CAN_FORK, Server, ServerGone, kill_group

SHARED: Final = (
    "torch",
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
    "torch._dynamo",
)
"""Modules that the server loads: no environment pins torch, and loading these takes most of a
consumer's start (2.6 of the 4.3 s of `transformers.Trainer`)."""


@dataclass(frozen=True, slots=True)
class Script:
    """One run: the arguments after the interpreter's flags, its variables, input and folder.

    Its output is appended to the existing file `output`; the run may take `seconds`.
    """

    arguments: Sequence[str]
    variables: Mapping[str, str]
    folder: Path
    input: Path
    output: Path
    seconds: float


def run(environment: Environment, script: Script) -> int | None:
    """The exit status; None if the time ran out and the whole process group was killed."""
    with _SERVERS.free(script.variables) as server, suppress(ServerGone):
        if server is not None:
            return _run_forked(server, environment, script)
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
    """Kill the process and its children, which are a process group since it leads a session."""
    if hasattr(os, "killpg"):
        kill_group(process.pid)
    else:
        process.kill()
    process.wait()


def _run_forked(server: Server, environment: Environment, script: Script) -> int | None:
    request = {
        "arguments": list(script.arguments),
        "environment": dict(script.variables),
        "folder": str(script.folder),
        "input": str(script.input),
        "output": str(script.output),
        "modules": SHARED,
        "enter": {
            "packages": str(environment.packages),
            "python": str(environment.python),
            "prefix": str(environment.root),
        },
    }
    return server.run(request, script.seconds)


class _Servers:
    """The server of this process; it starts with the second script, as it saves no time for one."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._runs = 0
        self._one_run = threading.Lock()
        atexit.register(self.end)

    def end(self) -> None:
        """End the server if it was started."""
        if self._server is not None:
            self._server.end()

    @contextmanager
    def free(self, variables: Mapping[str, str]) -> Iterator[Server | None]:
        """The server, reserved for one run; None if there is none or it is busy."""
        self._runs += 1
        if not CAN_FORK or self._runs == 1 or not self._one_run.acquire(blocking=False):
            yield None
            return
        try:
            yield self._begun(variables)
        finally:
            self._one_run.release()

    def _begun(self, variables: Mapping[str, str]) -> Server | None:
        if self._server is None or not self._server.lives:
            try:
                self._server = Server([str(prepare(()).python), "-s", "-P"], variables)
            except (EnvironmentUnavailable, OSError):
                return None
        return self._server


_SERVERS: Final = _Servers()
