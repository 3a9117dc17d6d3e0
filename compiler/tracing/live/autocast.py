"""CUDA's autocast for meta tensors, for which torch has no autocast.

The lists hold the operators of torch 2.13 `aten/src/ATen/autocast_mode.h` (`AT_FORALL_FP32` and
its neighbours), as all Python functions of their names, and the functions that torch makes of them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

_F: Final = torch.nn.functional
_T: Final = torch.Tensor
_PLACES: Final = (torch, _T, _F, torch.linalg, torch._C._nn)  # noqa: SLF001


def _functions(operators: str) -> Iterator[Callable[..., Any]]:
    for operator in operators.split():
        name = operator.removeprefix("linalg_")
        yield from (getattr(place, name) for place in _PLACES if hasattr(place, name))


LOWER: Final = frozenset(
    _functions(
        "_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d "
        "conv_transpose3d convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot "
        "linear addbmm baddbmm bmm chain_matmul linalg_multi_dot lstm_cell gru_cell rnn_tanh_cell "
        "rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention"
    )
) | {_T.__matmul__, _T.__rmatmul__}
"""Functions that run in the 16-bit dtype."""
_OWN_DTYPE: Final = frozenset(
    _functions("prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum")
)
"""Functions whose input is not cast if a dtype is requested (`fp32_set_opt_dtype`)."""
FP32: Final = (
    _OWN_DTYPE
    | frozenset(
        _functions(
            "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow "
            "softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm nuclear_norm "
            "cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d "
            "hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss "
            "margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss "
            "multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp "
            "upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d "
            "_upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d "
            "upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d "
            "upsample_bicubic2d _upsample_bicubic2d_aa norm"
        )
    )
    | {torch.square, _T.square, _T.__pow__, _F.normalize, _F.cross_entropy}
)
"""Functions that run in fp32, and those that torch makes of such functions, as a square of a power.
"""


_NARROW_MODES: Final = frozenset({"area", "lanczos"})
"""Ways to interpolate that are not on the list: a mean, and a filter of torch 2.13."""


class CudaAutocast(TorchFunctionMode):  # type: ignore[misc]  # torch is not typed
    """Cast the inputs of listed functions, and cache casts of weights as autocast does."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self._weights: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func in LOWER:
            return cast_by(self.lower, func)(*args, **options)
        if _is_widened(func, options):
            return cast_by(widen, func)(*args, **options)
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


def _is_widened(func: Any, options: Mapping[str, Any]) -> bool:
    if func is _F.interpolate:
        return options.get("mode", "nearest") not in _NARROW_MODES
    return func in FP32 and not (func in _OWN_DTYPE and options.get("dtype") is not None)


def widen(value: torch.Tensor) -> torch.Tensor:
    """Cast a tensor of 16 bits to fp32."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value


def cast_by(
    cast: Callable[[torch.Tensor], torch.Tensor], function: Callable[..., Any]
) -> Callable[..., Any]:
    """A function whose tensors are cast first."""

    def called(*args: Any, **options: Any) -> Any:
        args, options = tree_map_only(torch.Tensor, cast, (args, options))
        return function(*args, **options)

    return called
