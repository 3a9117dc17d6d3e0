"""Work in a process of its own that counts as one of several: programs leave global state."""

import importlib
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any, Final

_SECONDS: Final = 120


def apart(work: Callable[..., Any], *given: Any, world: int = 1) -> Any:
    """What `work` gives back in a forked process, or the exception that it ends with, as text.

    torch's `fake` process group counts as `world` processes and lets every collective pass; with
    one process there is no group. The process works in a folder that is thrown away.
    """
    load_engine()
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_answer, args=(there, work, given, world), daemon=True
    )
    process.start()
    there.close()
    if not here.poll(_SECONDS):
        process.kill()
        return f"no answer in {_SECONDS} s"
    found = here.recv()
    process.join()
    return found


def load_engine() -> None:
    """Load here, and not in each fork, what DeepSpeed's engine imports last: torch's compiler.

    deepspeed 0.19.8 runtime/zero/muon/original_muon.py asks for it by `torch.compile`.
    """
    if "deepspeed" in sys.modules:
        importlib.import_module("deepspeed.runtime.zero.muon.muon_optimizer")


def _answer(there: Any, work: Callable[..., Any], given: tuple[Any, ...], world: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            _forget()
            if world > 1:
                _count(world)
            there.send(work(*given))
        except Exception as fault:  # noqa: BLE001  the refusal is the answer
            traceback.print_exc()
            there.send(f"{type(fault).__name__}: {fault}")
        os.chdir("/")


def _forget() -> None:
    """What accelerate found out in the process before is not true here."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)


def without_shared_memory() -> None:
    """Let DeepSpeed build nothing: a minute of g++ for what no fake group calls.

    Its module goes by its whole name: `deepspeed.comm.torch` is torch itself, which `from .comm
    import *` brings in (deepspeed 0.14.5 to 0.19.8 comm/__init__.py).
    """
    backend = importlib.import_module("deepspeed.comm.torch")
    backend.build_shm_op = lambda: None  # type: ignore[attr-defined]


def _count(world: int) -> None:
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": "1"}
    os.environ.update({**ranks, "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
    without_shared_memory()
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
