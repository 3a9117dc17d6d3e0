"""Saving after the traced step: whole weights on rank 0, by the code that a Trainer calls."""

import importlib
from collections.abc import Callable
from typing import Any

import torch

from tunec.compiler.analyses.memory.terms.weights import saves_whole
from tunec.compiler.tracing.live.host_units import moving_units
from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.recording import SAVING
from tunec.compiler.tracing.subject import Subject


def save_sharded_by_zero(subject: Subject, storages: Storages, engine: Any) -> None:
    """Record the parameters of stage 3 that DeepSpeed gathers, module by module."""
    if saves_whole(subject.layout):
        storages.recording.begin(SAVING)
        engine._zero3_consolidated_16bit_state_dict()  # noqa: SLF001  what `save_model` calls
        storages.recording.begin("")


def save_sharded_by_fsdp(subject: Subject, storages: Storages, model: Any) -> None:
    """Record what FSDP gathers for a full checkpoint, which goes to the host of rank 0."""
    fsdp = subject.layout.fsdp
    if not saves_whole(subject.layout) or fsdp.offload_params:
        return  # what is on the host already is told apart from the device in training alone
    storages.recording.begin(SAVING)
    if fsdp.version == 1:
        with moving_units(storages):
            _units(model)
    else:
        with replaced(storages, "answer", _on_host(storages)):
            _parameters(model, _moments(storages, model))
    storages.recording.begin("")


def _parameters(model: Any, optimizer: torch.optim.Optimizer) -> None:
    """Save under version 2: weights, then the optimizer's moments.

    accelerate 1.15 `accelerator.py`, `get_state_dict`, and `utils/fsdp_utils.py`,
    `save_fsdp_optimizer`: these options.
    """
    state_dict = importlib.import_module("torch.distributed.checkpoint.state_dict")
    options = state_dict.StateDictOptions(
        full_state_dict=True, broadcast_from_rank0=True, cpu_offload=True
    )
    state_dict.get_model_state_dict(model, options=options)
    state_dict.get_optimizer_state_dict(model, optimizer, options=options)


def _moments(storages: Storages, model: Any) -> torch.optim.Optimizer:
    """An optimizer that has already stepped, whose states the trace has already counted."""
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    storages.is_hidden = True
    for each in trained:
        moments = {name: torch.zeros_like(each) for name in ("exp_avg", "exp_avg_sq")}
        for made in moments.values():
            storages.overlook(getattr(made, "_local_tensor", made))
        optimizer.state[each] = {"step": torch.zeros(()), **moments}
    storages.is_hidden = False
    return optimizer


def _units(model: Any) -> None:
    """Save under version 1 (accelerate 1.15 `accelerator.py`, `get_state_dict`: this config)."""
    fsdp = importlib.import_module("torch.distributed.fsdp")
    config = fsdp.FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with type(model).state_dict_type(model, fsdp.StateDictType.FULL_STATE_DICT, config):
        model.state_dict()


def _on_host(storages: Storages) -> Callable[[Any, Any, Any], Any]:
    """Answers copies to the host with stand-ins, which take no device memory."""
    others = storages.answer

    def answer(func: Any, args: Any, kwargs: Any) -> Any:
        device = kwargs.get("device")
        copies = func is torch.ops.aten._to_copy.default  # noqa: SLF001
        if copies and device is not None and torch.device(device).type == "cpu":
            return storages.overlook(torch.empty_like(args[0]))
        return others(func, args, kwargs) if others is not None else NotImplemented

    return answer
