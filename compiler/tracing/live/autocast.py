"""CUDA's autocast for meta tensors, for which torch has no autocast.

The lists are those of torch 2.13 `aten/src/ATen/autocast_mode.h` (`AT_FORALL_LOWER_PRECISION_FP`,
`AT_FORALL_FP32`, `AT_FORALL_FP32_SET_OPT_DTYPE`), as the Python functions through which models
reach them.
"""

from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

_F: Final = torch.nn.functional
_T: Final = torch.Tensor
LOWER: Final = frozenset(
    {_F.linear, _F.conv1d, _F.conv2d, _F.conv3d, _F.bilinear, torch.conv1d, torch.conv2d}
    | {torch.conv3d, _F.conv_transpose1d, _F.conv_transpose2d, _F.conv_transpose3d}
    | {torch.matmul, torch.mm, torch.bmm, torch.mv, torch.addmm, torch.addbmm, torch.baddbmm}
    | {torch.einsum, torch.prelu, _F.scaled_dot_product_attention, torch.addmv, torch.addr}
    | {torch.inner, torch.tensordot, torch.chain_matmul, torch.linalg.multi_dot}
    | {_T.matmul, _T.mm, _T.bmm, _T.mv, _T.addmm, _T.baddbmm, _T.__matmul__, _T.__rmatmul__}
    | {_T.addbmm, _T.addmv, _T.addr, _T.inner}
)
"""Functions that run in the 16-bit dtype, and those that torch makes of such functions."""
FP32: Final = frozenset(
    {torch.exp, torch.log, torch.pow, torch.rsqrt, torch.reciprocal, torch.norm, torch.cumsum}
    | {torch.cumprod, torch.dist, torch.cdist, torch.renorm, torch.logsumexp, torch.prod, torch.sum}
    | {torch.softmax, torch.log_softmax, torch.expm1, torch.log1p, torch.log2, torch.log10}
    | {_T.exp, _T.log, _T.pow, _T.rsqrt, _T.reciprocal, _T.norm, _T.cumsum, _T.cumprod, _T.prod}
    | {_T.sum, _T.softmax, _T.log_softmax, _T.logsumexp, _T.__pow__, torch.square, _T.square}
    | {torch.acos, torch.asin, torch.cosh, torch.sinh, torch.tan, torch.erfinv, _T.expm1, _T.log1p}
    | {_T.acos, _T.asin, _T.cosh, _T.sinh, _T.tan, _T.erfinv, _T.log2, _T.log10, _T.dist, _T.renorm}
    | {torch.linalg.norm, torch.linalg.vector_norm, torch.linalg.matrix_norm, _F.normalize}
    | {_F.softmax, _F.log_softmax, _F.layer_norm, _F.group_norm, _F.softplus, _F.cross_entropy}
    | {_F.nll_loss, _F.mse_loss, _F.l1_loss, _F.smooth_l1_loss, _F.huber_loss, _F.kl_div}
    | {_F.cosine_similarity, _F.binary_cross_entropy_with_logits, torch.layer_norm}
    | {_F.hinge_embedding_loss, _F.soft_margin_loss, _F.margin_ranking_loss, _F.poisson_nll_loss}
    | {_F.triplet_margin_loss, _F.cosine_embedding_loss}
)
"""Functions that run in fp32, and those that torch makes of such functions, as a square of a power.
"""
_OWN_DTYPE: Final = frozenset(
    {torch.softmax, _T.softmax, _F.softmax, torch.sum, _T.sum, torch.prod, _T.prod, torch.cumsum}
    | {_T.cumsum, torch.cumprod, _T.cumprod, torch.log_softmax, _T.log_softmax, _F.log_softmax}
    | {torch.linalg.vector_norm, torch.linalg.matrix_norm}
)
"""Functions whose input is not cast if a dtype is requested (`fp32_set_opt_dtype`)."""


class CudaAutocast(TorchFunctionMode):  # type: ignore[misc]  # torch is not typed
    """Cast the inputs of listed functions, and cache casts of weights as autocast does."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self._weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func in LOWER:
            args, options = tree_map_only(torch.Tensor, self.lower, (args, options))
        elif func in FP32 and not (func in _OWN_DTYPE and options.get("dtype") is not None):
            args, options = tree_map_only(torch.Tensor, _fp32, (args, options))
        return func(*args, **options)

    def lower(self, value: torch.Tensor) -> torch.Tensor:
        """Cast a tensor to the 16-bit dtype; the cast of a weight is cached until `forget`."""
        if not value.is_floating_point() or value.dtype == self.dtype:
            return value
        if not (value.is_leaf and value.requires_grad and value.dtype == torch.float32):
            return value.to(self.dtype)
        known = self._weights.get(id(value))
        if known is None:
            known = self._weights[id(value)] = (value, value.to(self.dtype))
        return known[1]

    def forget(self) -> None:
        """Drop the casts of weights, as leaving the outermost autocast does."""
        self._weights.clear()


def _fp32(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
