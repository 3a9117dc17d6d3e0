"""Bytes alive while a real model runs forward and backward on tensors without data."""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

ATTENTION = "traced_kernel"


@dataclass
class Peaks:
    """The most bytes alive in each phase."""

    static: int = 0
    forward: int = 0
    kept: int = 0
    backward: int = 0
    at: str = ""


class LiveBytes(TorchDispatchMode):
    """Follow every storage that an operation makes, until it dies."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.now = 0
        self.peak = 0
        self.at = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in tree_iter(out):
            if isinstance(value, torch.Tensor):
                self.follow(value)
        if self.now > self.peak:
            self.peak, self.at = self.now, str(func)
        return out

    def follow(self, value: torch.Tensor) -> None:
        storage = value.untyped_storage()
        key = storage._cdata
        if key in self.alive:
            return
        self.alive[key] = storage.nbytes()
        self.now += storage.nbytes()
        weakref.finalize(storage, self.forget, key)

    def forget(self, key: int) -> None:
        self.now -= self.alive.pop(key, 0)

    def restart(self) -> None:
        self.peak = self.now


def kernel(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: Any,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention by the fused kernels' own shape rules, which exist on meta.

    Flash where queries and values are equally wide, the memory-efficient kernel where not.
    """
    if query.shape[-1] == value.shape[-1]:
        out = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, True)[0]
    else:
        out = torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, None, True, 0.0, True
        )[0]
    return out.transpose(1, 2).contiguous(), None


def register_kernel() -> str:
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, kernel)
    return ATTENTION


def fused_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **kwargs: Any
) -> torch.Tensor:
    """`scaled_dot_product_attention` by the flash kernel's shape rules."""
    causal = bool(kwargs.get("is_causal"))
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal)[0]


@contextmanager
def fused_sdpa() -> Iterator[None]:
    """On meta torch would write attention out, with scores in fp32."""
    plain = torch.nn.functional.scaled_dot_product_attention
    torch.nn.functional.scaled_dot_product_attention = fused_attention
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = plain


@contextmanager
def cuda_dropout() -> Iterator[None]:
    """CUDA's dropout keeps a mask of bools; that of meta and CPU keeps the noise."""
    plain = torch.nn.functional.dropout

    def dropout(
        x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Any:
        return torch.native_dropout(x, p, training)[0] if training and p else x

    torch.nn.functional.dropout = dropout
    try:
        yield
    finally:
        torch.nn.functional.dropout = plain


def trace(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Peaks:
    """Run forward and backward twice, so that gradients are made anew, and watch the second."""
    gc.collect()
    with LiveBytes() as live, cuda_dropout():
        for value in (*model.parameters(), *model.buffers()):
            live.follow(value)
        peaks = Peaks(static=live.now)
        live.restart()
        result = loss()
        gc.collect()
        peaks.forward, peaks.kept = live.peak, live.now
        live.restart()
        result.backward()
        peaks.backward, peaks.at = live.peak, live.at
    return peaks
