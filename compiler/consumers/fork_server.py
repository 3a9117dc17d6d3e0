"""Loads modules once, then forks for each requested process.

A line of JSON on standard input requests a process; two lines on standard output give its number
when it has begun, and its exit status when it has ended. A request holds `arguments` (a script's
path, then the script's arguments), `environment`, `folder`, the files `input` and `output`, the
`modules` to load before the fork if they are not loaded yet, and in `enter` the environment of the
process if it is not the server's. The server ends with its standard input. Only the standard
library is imported here.

None of the modules may start a thread, since threads do not survive a fork.
"""

import importlib
import json
import os
import runpy
import signal
import site
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

_LOOK_SECONDS: Final = 0.01


def main() -> None:
    """Run a process for every request on standard input."""
    parent = os.getppid()
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.chdir(os.sep)  # no folder is held open
    for line in sys.stdin:
        _serve(json.loads(line), told, parent)


def _serve(request: dict[str, Any], told: IO[str], parent: int) -> None:
    for name in request["modules"]:
        with suppress(Exception):  # whatever needs it will say what is wrong with it
            importlib.import_module(name)
    child = os.fork()
    if child == 0:
        os._exit(_child(request, told))
    told.write(f"{_wait(child, parent)}\n")


def _wait(child: int, parent: int) -> int:
    """The child's exit status; if the requesting process is gone, end the child and this one."""
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if os.getppid() != parent:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os._exit(1)
        time.sleep(_LOOK_SECONDS)


def _child(request: dict[str, Any], told: IO[str]) -> int:
    """Run a script as the environment's own interpreter would; return its exit status."""
    os.setsid()
    told.write(f"{os.getpid()}\n")
    told.close()
    try:
        _redirect(request)
        if "enter" in request:
            _enter(**request["enter"])
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  what an interpreter prints at its end
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    return status


def _redirect(request: dict[str, Any]) -> None:
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    sys.argv[:] = request["arguments"]
    os.dup2(os.open(request["input"], os.O_RDONLY), 0)
    output = os.open(request["output"], os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", buffering=1, closefd=False)


def _enter(packages: str, python: str, prefix: str) -> None:
    """Set what a start of the environment's interpreter sets, and unload its packages' modules."""
    sys.executable, sys.prefix, sys.exec_prefix = python, prefix, prefix
    at = min(n for n, path in enumerate(sys.path) if path in site.getsitepackages())
    del sys.path[at:]
    site.addsitedir(packages)
    importlib.invalidate_caches()
    own = {each.name.removesuffix(".py") for each in Path(packages).iterdir()} - {"torch"}
    for name in [each for each in sys.modules if each.partition(".")[0] in own]:
        del sys.modules[name]


if __name__ == "__main__":
    main()
