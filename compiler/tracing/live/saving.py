"""Saving after the traced step: whole weights on rank 0, by the code that a Trainer calls."""

from collections.abc import Callable
from typing import Any

import torch

from tunec.compiler.analyses.memory.saving import saves_whole
from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.recording import SAVING
from tunec.compiler.tracing.subject import Subject


def save_sharded_by_zero(subject: Subject, storages: Storages, engine: Any) -> None:
    """Record what DeepSpeed gathers of stage 3's parameters, module by module."""
    if saves_whole(subject.layout):
        storages.recording.begin(SAVING)
        engine._zero3_consolidated_16bit_state_dict()  # noqa: SLF001  what `save_model` calls
        storages.recording.begin("")


def save_sharded_by_fsdp(subject: Subject, storages: Storages, model: Any) -> None:
    """Record what FSDP 2 gathers for a full state dict, which goes to the host of rank 0.

    accelerate 1.15 `accelerator.py`, `get_state_dict`: these options.
    """
    fsdp = subject.layout.fsdp
    if not saves_whole(subject.layout) or fsdp.version != 2 or fsdp.offload_params:
        return  # what is on the host already is told apart from the device in training alone
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    storages.recording.begin(SAVING)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, cpu_offload=True)
    with replaced(storages, "answer", _on_host(storages)):
        get_model_state_dict(model, options=options)
    storages.recording.begin("")


def _on_host(storages: Storages) -> Callable[[Any, Any, Any], Any]:
    """Answers with stand-ins for what is copied to the host: no memory of the device's."""
    others = storages.answer
    wrapping = torch.ops._c10d_functional._wrap_tensor_autograd.default  # noqa: SLF001

    def answer(func: Any, args: Any, kwargs: Any) -> Any:
        if func is wrapping:  # a class around the tensor; on meta alone it is a second one
            return args[0].detach()
        device = kwargs.get("device")
        copies = func is torch.ops.aten._to_copy.default  # noqa: SLF001
        if copies and device is not None and torch.device(device).type == "cpu":
            return storages.overlook(torch.empty_like(args[0]))
        return others(func, args, kwargs) if others is not None else NotImplemented

    return answer
