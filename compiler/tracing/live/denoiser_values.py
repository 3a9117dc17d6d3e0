"""Answers of a pass on meta if a denoiser requests values, which meta tensors lack."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.functional import interpolate

from tunec.compiler.tracing.live.denoiser_sample import Given, Traits


@contextmanager
def answered(given: Given, traits: Traits) -> Iterator[None]:
    """Let a class ask how long a text is, which tokens an expert has, and what holds."""
    experts = getattr(given.config, traits.experts, 1) if traits.experts else 1
    count = traits.counts(given) if traits.counts else given.grid.text
    patched: dict[str, Callable[..., Any]] = {"tolist": _counted(count), "__index__": _whole}
    if traits.experts or traits.values:
        patched |= _chosen(experts)
    if traits.values:
        patched["__bool__"] = _no
    with ExitStack() as stack:
        stack.enter_context(_resizing())
        stack.enter_context(_masking())
        for name, answer in patched.items():
            stack.enter_context(_replaced(name, answer))
        yield


@contextmanager
def _replaced(name: str, answer: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of meta tensors by another answer."""
    plain = getattr(torch.Tensor, name)

    def asked(self: torch.Tensor, *arguments: Any) -> Any:
        if self.device.type != "meta":
            return plain(self, *arguments)
        return answer(plain, self, *arguments)

    setattr(torch.Tensor, name, asked)
    try:
        yield
    finally:
        setattr(torch.Tensor, name, plain)


@contextmanager
def _resizing() -> Iterator[None]:
    """Let Cosmos make its mask as large as the picture if torchvision is not installed.

    diffusers 0.42 `transformer_cosmos.py`, `CosmosTransformer3DModel.forward`.
    """
    module = sys.modules.get("diffusers.models.transformers.transformer_cosmos")
    if module is None or hasattr(module, "transforms"):
        yield
        return
    held = vars(module)
    held["transforms"] = SimpleNamespace(
        functional=SimpleNamespace(
            resize=lambda mask, size, interpolation: interpolate(mask, size, mode=interpolation)
        ),
        InterpolationMode=SimpleNamespace(NEAREST="nearest"),
    )
    try:
        yield
    finally:
        del held["transforms"]


def _counted(count: int) -> Callable[..., Any]:
    """Answer the number of tokens: all that a mask could leave, or an expert's share.

    diffusers 0.42 `transformer_lumina2.py`, `Lumina2RotaryPosEmbed.forward`.
    """
    return lambda _, self: [count] * self.numel()


def _whole(_: Any, _self: torch.Tensor) -> int:
    """Answer where a slice ends that is as long as a mask has places: behind all that there is.

    diffusers 0.42 `transformer_hunyuan_video_framepack.py`, `forward`.
    """
    return sys.maxsize


@contextmanager
def _masking() -> Iterator[None]:
    """Let masks that hold values, which say where pictures stand, meet tensors that hold none.

    diffusers 0.42 `transformer_qwenimage21.py`, `forward`.
    """
    chosen, repeated = torch.where, torch.Tensor.repeat_interleave

    def where(mask: torch.Tensor, *sides: Any, **options: Any) -> Any:
        meta = any(isinstance(each, torch.Tensor) and each.is_meta for each in sides)
        return chosen(mask.to("meta") if meta else mask, *sides, **options)

    def repeat(self: torch.Tensor, times: Any, dim: int | None = None, **options: Any) -> Any:
        if not (self.is_meta and isinstance(times, torch.Tensor) and not times.is_meta):
            return repeated(self, times, dim, **options)
        return self.index_select(dim or 0, torch.repeat_interleave(times).to("meta"))

    held = vars(torch)
    held["where"], torch.Tensor.repeat_interleave = where, repeat
    try:
        yield
    finally:
        held["where"], torch.Tensor.repeat_interleave = chosen, repeated


def _no(_: Any, _self: torch.Tensor) -> bool:
    """Answer that a condition on values does not hold.

    diffusers 0.42 `transformer_hunyuan_video15.py`, `forward`: whether a picture is given.
    """
    return False


def _chosen(experts: int) -> Mapping[str, Callable[..., Any]]:
    """Answer which rows a mask chooses: an expert's even share, or all; of its contrary none.

    diffusers 0.42 `transformer_hidream_image.py`, `MOEFeedForwardSwiGLU.forward`.
    """

    def places(mask: Any) -> Any:
        if not (isinstance(mask, torch.Tensor) and mask.dtype is torch.bool and mask.dim() == 1):
            return mask
        count = 0 if getattr(mask, "is_contrary", False) else len(mask) // experts
        return torch.zeros(count, dtype=torch.long, device="meta")

    def contrary(plain: Any, self: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = plain(self)
        found.is_contrary = True
        return found

    return {
        "__getitem__": lambda plain, self, at: plain(self, places(at)),
        "__setitem__": lambda plain, self, at, value: plain(self, places(at), value),
        "__invert__": contrary,
    }
