"""bitsandbytes' linear layers by the sizes of the tensors that they store, make and keep.

4 bits: bitsandbytes 0.45 `autograd/_functions.py`, `MatMul4Bit`; the packed weight and its scales
are stored, and each product expands the weight and then frees it. 8 bits: `MatMul8bitLt`; inputs
are quantised by rows, and the backward pass expands the weight.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import torch

from tunec.compiler.analyses.memory.modules import quantized_bytes
from tunec.compiler.ir.slots import Quantization

_DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class _Expanding(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed
    """x W^T with a weight that is expanded for each product."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, shape: tuple[int, int]) -> Any:
        ctx.save_for_backward(packed)
        ctx.shape = shape
        weight = torch.empty(shape, dtype=x.dtype, device=x.device)
        return torch.nn.functional.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        weight = torch.empty(ctx.shape, dtype=gradient.dtype, device=gradient.device)
        return gradient @ weight, None, None


class _Int8(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed
    """x W^T with inputs quantised by rows to 8 bits and a product in int32."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, shape: tuple[int, int]) -> Any:
        ctx.save_for_backward(packed)
        ctx.shape = shape
        quantised = torch.empty(x.shape, dtype=torch.int8, device=x.device)
        scales = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
        product = torch.empty(*x.shape[:-1], shape[0], dtype=torch.int32, device=x.device)
        del quantised, scales
        return torch.empty(product.shape, dtype=x.dtype, device=x.device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        weight = torch.empty(ctx.shape, dtype=gradient.dtype, device=gradient.device)
        return gradient @ weight, None, None


class Params4bit(torch.nn.Parameter):  # type: ignore[misc]  # torch is not typed
    """A packed weight under the class name by which accelerate recognises bitsandbytes' class."""


def _apart(
    elements: int, size: int, storage: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """A packed weight in its storage dtype, which can be sharded, and the bytes beside it."""
    packed = torch.empty(elements // 2 // storage.itemsize, 1, dtype=storage, device=device)
    return packed, torch.empty(size - packed.nbytes, dtype=torch.uint8, device=device)


def _sides(plain: torch.nn.Module) -> tuple[int, int]:
    """The inputs and outputs of a linear layer, or of GPT-2's layer, whose weight is transposed.

    transformers 5.23 `integrations/bitsandbytes.py`, `replace_with_bnb_linear`, packs both.
    """
    if isinstance(plain, torch.nn.Linear):
        return plain.in_features, plain.out_features
    inputs, outputs = plain.weight.shape
    return inputs, outputs


class QuantizedLinear(torch.nn.Linear):  # type: ignore[misc]  # torch is not typed
    """A frozen linear layer whose weight is one storage of bitsandbytes' size in bytes."""

    def __init__(self, plain: torch.nn.Module, quantization: Quantization) -> None:
        torch.nn.Module.__init__(self)
        self.in_features, self.out_features = _sides(plain)
        elements = self.in_features * self.out_features
        size = round(quantized_bytes(quantization) * elements)
        eight = quantization.format == "int8"
        size += 4 * self.out_features if eight else 0
        device, self.scales = plain.weight.device, None
        if quantization.storage is not None:
            packed, self.scales = _apart(elements, size, _DTYPES[quantization.storage], device)
        else:
            packed = torch.empty(size, dtype=torch.uint8, device=device)
        self.weight = Params4bit(packed, requires_grad=False)
        self.bias = plain.bias
        self.product: type[torch.autograd.Function] = _Int8 if eight else _Expanding
        self.compute = _DTYPES[quantization.compute]

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Compute in the quantisation's dtype and return a tensor of the input's dtype."""
        x = input.to(self.compute)
        shape = (self.out_features, self.in_features)
        out: torch.Tensor = self.product.apply(x, self.weight, shape)
        if self.bias is not None:
            out = out + self.bias.to(out.dtype)
        return out.to(input.dtype)


def quantize(
    model: torch.nn.Module, names: Iterable[str], quantization: Quantization
) -> Callable[[], None]:
    """Replace the named linear layers; calling what is returned does nothing but keep them."""
    for name in names:
        owner, _, leaf = name.rpartition(".")
        parent = model.get_submodule(owner)
        setattr(parent, leaf, QuantizedLinear(getattr(parent, leaf), quantization))
    return lambda: None
