"""FSDP 1's shards in host RAM: torch's own code, on tensors there that are not counted.

What goes to the host stays a meta tensor, of which nothing is counted and which says that it is on
the CPU; one that is asked to come to the device is made anew there and followed.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch

from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.live.storages import Storages

_ATEN: Final = torch.ops.aten
_BESIDE: Final = (
    _ATEN._to_copy.default,  # noqa: SLF001  what `Tensor.to` calls
    _ATEN.zeros_like.default,
    _ATEN.empty_like.default,
    _ATEN.clone.default,
)
"""What makes a tensor where another one lies."""


@contextmanager
def moving_units(storages: Storages) -> Iterator[None]:
    """Let shards go to the host and come from there, and gradients go there."""
    others, plain_to, plain_device = storages.answer, torch.Tensor.to, torch.Tensor.device

    def answer(func: Any, args: Any, kwargs: Any) -> Any:
        device = kwargs.get("device")
        beside = func in _BESIDE and device is None and storages.overlooks(args[0])
        if beside or str(device) == "cpu":
            # a clone takes no device
            place = {} if func is _ATEN.clone.default else {"device": "meta"}
            return storages.overlook(func(*args, **(kwargs | place)))
        return NotImplemented if others is None else others(func, args, kwargs)

    def come(value: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if args[:1] == (torch.device("meta"),) and storages.overlooks(value):
            return torch.empty(value.shape, dtype=value.dtype, device="meta")
        moved: torch.Tensor = plain_to(value, *args, **options)
        return moved

    def lies(value: torch.Tensor) -> torch.device:
        found: torch.device = plain_device.__get__(value)
        return torch.device("cpu") if storages.overlooks(value) else found

    with ExitStack() as stack:
        for owner, name, substitute in (
            (storages, "answer", answer),
            (torch.Tensor, "to", come),
            (torch.Tensor, "pin_memory", lambda value: value),
            (torch.Tensor, "device", property(lies)),
        ):
            stack.enter_context(replaced(owner, name, substitute))
        yield
