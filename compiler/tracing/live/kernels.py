"""What a GPU runs where meta tensors would take another path: attention, softmax, norms, scalars.

Each substitute calls the very operation that torch 2.13 dispatches to on CUDA, whose shape rules
and autograd formulas exist on meta too.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Final

import torch

from tunec.compiler.tracing.live.autocast import CudaAutocast, cast_by, widen

ATTENTION: Final = "traced_kernel"
"""The name must not hold `flash`: transformers would then look for a kernel to download."""
_WIDEST_FLASH_HEAD: Final = 256
"""torch 2.13 `sdp_utils.cpp`, `check_head_dim_size_flash`."""


def fused_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Scaled dot product attention by the kernels that CUDA has.

    Flash without a mask, where queries and values are equally wide; else the memory-efficient one,
    which takes a boolean mask as an additive bias of the queries' dtype.
    """
    flash = attn_mask is None and query.shape[-1] == value.shape[-1] <= _WIDEST_FLASH_HEAD
    if flash:
        out: torch.Tensor = _aten("_scaled_dot_product_flash_attention")(
            query, key, value, dropout_p, is_causal, scale=scale
        )[0]
        return out
    if enable_gqa and key.shape[1] != query.shape[1]:
        groups = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(groups, 1) for each in (key, value))
    bias = None if attn_mask is None else _bias(attn_mask, query, key)
    kept = query.requires_grad or key.requires_grad or value.requires_grad
    out = _aten("_scaled_dot_product_efficient_attention")(
        query, key, value, bias, kept, dropout_p, is_causal, scale=scale
    )[0]
    return out  # noqa: RET504  typed above


def _aten(name: str) -> Any:
    """A private operation, of which torch has no public name."""
    return getattr(torch.ops.aten, name)


def _bias(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """torch `attention.cpp`, `convert_boolean_attn_mask`, then an expansion without memory."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), 0)
    return mask.expand(*query.shape[:-1], key.shape[-2])


def native_dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, *_: Any, **__: Any
) -> torch.Tensor:
    """CUDA's dropout keeps a mask of bools; that of meta and CPU keeps the noise."""
    out: torch.Tensor = torch.native_dropout(input, p, training)[0] if training and p else input
    return out


class _WideSoftmax(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed
    """CUDA's softmax from fp16 to fp32, which makes no fp32 copy of its input.

    torch 2.13 `aten/src/ATen/native/SoftMax.cpp`, `softmax`: fp16 alone; bf16 is converted first.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Keep the result, as torch does."""
        out = torch.empty_like(x, dtype=torch.float32)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Answer in fp16 at once."""
        (out,) = ctx.saved_tensors  # held to the end, as the kernel does
        product = gradient * out
        return torch.empty_like(product, dtype=torch.float16)


def softmax(
    input: torch.Tensor,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Softmax as CUDA differentiates it: beside a product of its gradient and its result.

    torch 2.13 `aten/src/ATen/native/cuda/SoftMax.cu`, `softmax_backward_cuda_out`.
    """
    if input.dtype == torch.float16 and dtype == torch.float32:
        widened: torch.Tensor = _WideSoftmax.apply(input)
        return widened
    out = input.softmax(-1 if dim is None else dim, dtype=dtype)
    if out.grad_fn is not None:
        product: list[torch.Tensor] = []
        out.grad_fn.register_prehook(lambda given: product.append(torch.empty_like(given[0])))
        out.grad_fn.register_hook(lambda *_: product.clear())
    return out


class FusedRmsNorm(torch.autograd.Function):  # type: ignore[misc]  # torch is not typed
    """CUDA's kernel for torch's own RMSNorm, which keeps its input and an fp32 number a row.

    On meta `aten._fused_rms_norm` is composed of single operations, which keep more.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """Keep what the backward kernel reads."""
        scale = torch.empty(*x.shape[:-1], 1, dtype=torch.float32, device=x.device)
        ctx.save_for_backward(x, weight, scale)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Make the gradients of input and weight."""
        x, weight = ctx.saved_tensors[:2]
        needed = weight is not None and ctx.needs_input_grad[1]
        return torch.empty_like(x), torch.empty_like(weight) if needed else None


def fused_rms_norm(
    input: torch.Tensor, _: Any, weight: torch.Tensor | None = None, *__: Any, **___: Any
) -> torch.Tensor:
    """torch's own RMSNorm as CUDA runs it."""
    out: torch.Tensor = FusedRmsNorm.apply(input, weight)
    return out


def register_attention(*, padded: bool, flash: bool = False) -> str:
    """Make transformers call fused attention; return the name of the implementation.

    `flash`: FlashAttention-2, which gets no mask where all samples are as long as the longest one
    (transformers 5.23 `masking_utils.py`, `flash_attention_mask`).
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def mask(*args: Any, **options: Any) -> Any:
        if flash:
            return None
        if padded:
            options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        return sdpa_mask(*args, **options)

    AttentionInterface.register(ATTENTION, sdpa_attention_forward)
    AttentionMaskInterface.register(ATTENTION, mask)
    return ATTENTION


@contextmanager
def replaced(owner: Any, name: str, substitute: Any) -> Iterator[None]:
    """Put something in the place of an attribute for a while."""
    plain = getattr(owner, name)
    setattr(owner, name, substitute)
    try:
        yield
    finally:
        setattr(owner, name, plain)


@contextmanager
def as_on_gpu(casts: CudaAutocast | None = None) -> Iterator[None]:
    """All substitutes, and answers for scalars that meta tensors do not have.

    `casts`: the autocast that runs, which does not see what substitutes are given.
    """
    functional = torch.nn.functional
    attention, rms_norm = fused_attention, fused_rms_norm
    if casts:
        attention, rms_norm = cast_by(casts.lower, attention), cast_by(widen, rms_norm)
    with ExitStack() as stack:
        stack.enter_context(replaced(functional, "scaled_dot_product_attention", attention))
        stack.enter_context(replaced(functional, "dropout", native_dropout))
        stack.enter_context(replaced(functional, "softmax", softmax))
        stack.enter_context(replaced(functional, "rms_norm", rms_norm))
        stack.enter_context(replaced(torch, "_check_tensor_all_with", lambda *_, **__: None))
        stack.enter_context(replaced(torch, "autocast", _no_autocast(torch.autocast)))
        stack.enter_context(_whole_sequences())
        for name, number in (("item", float), ("__bool__", bool), ("__float__", float)):
            stack.enter_context(replaced(torch.Tensor, name, _scalar(name, number)))
        yield


def _no_autocast(plain: Any) -> Any:
    """torch knows no autocast of meta tensors, which DeepSpeed's linear layer and peft ask for."""

    def autocast(device_type: str, *args: Any, **options: Any) -> Any:
        return nullcontext() if device_type == "meta" else plain(device_type, *args, **options)

    return autocast


@contextmanager
def _whole_sequences() -> Iterator[None]:
    """transformers looks into positions for packed samples, and meta tensors hold none."""
    try:
        from transformers import masking_utils
    except ImportError:
        yield
        return
    with replaced(masking_utils, "find_packed_sequence_indices", lambda _: None):
        yield


def _scalar(name: str, number: Callable[[int], Any]) -> Callable[[torch.Tensor], Any]:
    plain = getattr(torch.Tensor, name)

    def scalar(self: torch.Tensor) -> Any:
        if self.device.type != "meta":
            return plain(self)
        return number(0) if self.dtype.is_floating_point or name != "item" else 0

    return scalar
