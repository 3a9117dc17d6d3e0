"""Ties a process to the keeper of the run: it holds a lock, and ends with the keeper.

A launcher may start each rank in a new session (torch 2.13
distributed/elastic/multiprocessing/subprocess_handler: `start_new_session`), so that no signal to a
process group reaches all ranks. A lock on a file does: the kernel releases it when its holder ends,
however that happens.
"""

import fcntl
import os
import signal
import threading
from pathlib import Path
from typing import IO

_held: list[IO[bytes]] = []


def tie(folder: Path, name: str) -> None:
    """Record that this process runs, and end it as soon as the keeper of `folder` has ended."""
    _held.clear()  # that of the process it was forked from
    own = Path(folder, f"{name}.pid").open("wb")  # noqa: SIM115  held until this process ends
    own.write(str(os.getpid()).encode())
    own.flush()
    fcntl.flock(own, fcntl.LOCK_EX)
    _held.append(own)
    threading.Thread(target=_follow, args=(folder,), daemon=True).start()


def _follow(folder: Path) -> None:
    try:
        with Path(folder, "alive").open("rb") as kept:
            fcntl.flock(kept, fcntl.LOCK_SH)  # granted when the keeper is gone
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
