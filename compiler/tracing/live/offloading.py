"""Activations that wait in host RAM: TRL's own context, on tensors without data.

A copy on the host becomes a tensor of one element, which has the right shape and is not followed; a
copy back to the device becomes a device tensor again. Streams and events do nothing: the context
keeps the tensors that they delay in its own tables.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Final

import torch

from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.subject import Subject

_MAKE: Final = torch.ops.aten.empty_like.default
_COPY: Final = torch.ops.aten.copy_.default


@contextmanager
def offloading(subject: Subject, storages: Storages, model: torch.nn.Module) -> Iterator[Any]:
    """Yield the context in which TRL runs a micro batch (trl 1.16 `SFTTrainer.training_step`).

    A diffusion model's trainer moves activations layer by layer (`segments.py`).
    """
    diffusion = subject.workload.architecture.kind == "diffusion"
    if diffusion or not subject.layout.activation_checkpointing.offload:
        yield nullcontext()
        return
    from trl.models import activation_offloading

    with ExitStack() as stack:
        stack.enter_context(_device())
        answer = storages.answer
        storages.answer = _HostCopies(answer)
        yield activation_offloading.get_act_offloading_ctx_manager(model, use_pin_memory=False)
        storages.answer = answer


class _HostCopies:
    """Copies on the host are made of one element, and never written."""

    def __init__(self, others: Any) -> None:
        self.others = others

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func is _MAKE and str(kwargs.get("device")) == "cpu":
            like = args[0]
            return torch.empty(1, dtype=like.dtype, device="cpu").expand(like.shape)
        if func is _COPY and args[0].device.type == "cpu":
            return args[0]
        return NotImplemented if self.others is None else self.others(func, args, kwargs)


class _Stream:
    """A stream, or an event on it, that never has pending work."""

    def record_event(self) -> "_Stream":
        return self

    def wait_event(self, _: Any) -> None:
        """Do nothing: no work is pending."""

    wait_stream = wait_event

    def synchronize(self) -> None:
        """Do nothing: no work is pending."""


class _Module:
    """The module that torch has for a device with streams."""

    Stream = _Stream

    def current_stream(self) -> _Stream:
        return _Stream()

    def stream(self, _: Any) -> Any:
        return nullcontext()

    def empty_cache(self) -> None:
        """Do nothing: there is no cache."""


class _Accelerator:
    """The result of `torch.accelerator` for the device."""

    type = "meta"


@contextmanager
def _device() -> Iterator[None]:
    """Make the meta device look like an accelerator whose storages have addresses."""
    address = torch.UntypedStorage.data_ptr

    def identity(storage: torch.UntypedStorage) -> int:
        on_device = storage.device.type == "meta"
        return int(storage._cdata if on_device else address(storage))  # noqa: SLF001

    with (
        replaced(torch.accelerator, "current_accelerator", lambda *_, **__: _Accelerator),
        replaced(torch, "get_device_module", lambda *_: _Module()),
        replaced(torch.UntypedStorage, "data_ptr", identity),
        replaced(torch.Tensor, "record_stream", lambda *_: None),
    ):
        yield
