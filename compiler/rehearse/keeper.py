"""The process that guards a rehearsal: it starts the launcher, and leaves nothing behind.

It reads its standard input, which tunec holds open. When that ends, because tunec closed it or was
killed, the keeper kills the launcher and every rank; if tunec was killed, it removes the folder
too. Runs as `python -m tunec.compiler.rehearse.keeper FOLDER COMMAND...` and imports only the
standard library. Without COMMAND it starts nothing: it prints KEPT once processes can safely tie
themselves to it.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

DONE: Final = b"done"
"""Written by tunec before it closes the pipe; tunec itself then removes the folder."""

KEPT: Final = b"kept\n"
"""Written to standard output once the keeper holds the lock that the ranks watch."""

_PATIENCE: Final = 10.0


def main(arguments: Sequence[str]) -> int:
    """Run the launcher in FOLDER/work; return its exit status, or 1 if it was killed."""
    folder, command = Path(arguments[0]), list(arguments[1:])
    with Path(folder, "alive").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if command:
            return _keep(folder, command)
        os.write(1, KEPT)
        return _listen(folder, None, threading.Event())


def _keep(folder: Path, command: Sequence[str]) -> int:
    with Path(folder, "output.txt").open("ab") as output:
        launcher = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder / "work",
            start_new_session=True,
        )
        ended = threading.Event()
        threading.Thread(target=_listen, args=(folder, launcher.pid, ended), daemon=True).start()
        status = launcher.wait()
        _kill_all(folder, launcher.pid)
        if ended.is_set():  # the listener sees to the folder, and ends this process
            time.sleep(2 * _PATIENCE)
        return status if status >= 0 else 1


def _listen(folder: Path, launcher: int | None, ended: threading.Event) -> NoReturn:
    """Wait for the end of the pipe, then kill all processes."""
    said = sys.stdin.buffer.read()
    ended.set()
    _kill_all(folder, launcher)
    if said != DONE:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _kill_all(folder: Path, launcher: int | None) -> None:
    """Kill the launcher's group and all tied processes, and wait until they have ended."""
    if launcher is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(launcher, signal.SIGKILL)
    until = time.monotonic() + _PATIENCE
    while _kill_tied(folder) and time.monotonic() < until:
        time.sleep(0.05)


def _kill_tied(folder: Path) -> int:
    """Kill the processes that still hold their lock (live/watchdog.py); return their number."""
    alive = 0
    for path in folder.glob("*.pid"):
        with suppress(FileNotFoundError), path.open("rb") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                alive += 1
                with suppress(ProcessLookupError, ValueError):
                    os.kill(int(held.read()), signal.SIGKILL)
    return alive


if __name__ == "__main__":
    # not sys.exit: the listener still reads, and the interpreter would wait for its buffer's lock
    os._exit(main(sys.argv[1:]))
