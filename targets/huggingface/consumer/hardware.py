"""The machine on which TrainingArguments believes to run: the plan's, not the local one."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import transformers.utils.import_utils as import_utils
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from transformers import TrainingArguments
from transformers.integrations import deepspeed as integration

from tunec.compiler.consumers.devices import Device, pretended


@contextmanager
def machine(device: Device, world_size: int) -> Iterator[None]:
    """Act as one of `world_size` processes with `device`, and undo all changes afterwards.

    `_setup_devices` is replaced, because the real one starts a process group: the replacement
    returns the device and counts the processes. All decisions about dtypes stay the library's own.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ))
        stack.enter_context(pretended(device))
        stack.enter_context(
            patch.object(TrainingArguments, "_setup_devices", property(_devices(world_size)))
        )
        _forget()
        try:
            yield
        finally:
            _forget()


def _devices(world_size: int) -> Any:
    kind = DistributedType.MULTI_GPU if world_size > 1 else DistributedType.NO

    def setup(arguments: Any) -> torch.device:
        arguments._n_gpu = 0 if arguments.use_cpu else 1  # noqa: SLF001
        arguments.distributed_state = SimpleNamespace(
            num_processes=world_size,
            process_index=0,
            local_process_index=0,
            is_main_process=True,
            is_local_main_process=True,
            distributed_type=kind,
        )
        return torch.device("cpu") if arguments.use_cpu else torch.device("cuda", 0)

    return setup


def _forget() -> None:
    """Clear caches about the hardware, and the global that marks a DeepSpeed run."""
    for name in dir(import_utils):
        clear = getattr(getattr(import_utils, name), "cache_clear", None)
        if name.startswith("is_torch") and clear is not None:
            clear()
    integration.unset_hf_deepspeed_config()
    AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001
