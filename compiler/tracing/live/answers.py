"""Answers for operations whose results depend on data that meta tensors do not hold."""

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only


class Answers:
    """Answers about masks of image places, whose number is known from the batch."""

    def __init__(
        self,
        image_places: int,
        *,
        mixed: bool = False,
        labels: int | None = None,
        scored: int = 0,
        logs: bool = False,
    ) -> None:
        self.places = image_places
        self.labels, self.scored = labels, scored
        """The number of labels in (batch, sequence - 1), and how many of them a loss picks; None:
        it takes all of them as they are."""
        self.logs = logs
        """Whether a trainer reads numbers for its log; zeros are good enough for them."""
        self.mixed = mixed
        """Whether the batch holds grids on the CPU whose numbers the model reads."""

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The answer of one operation, or NotImplemented for an operation that needs none."""
        aten = torch.ops.aten
        if func is torch.ops._c10d_functional._wrap_tensor_autograd.default:  # noqa: SLF001
            return args[0].detach()  # a class around the tensor; on meta alone it is a second one
        if func is aten.copy_.default and _leaves(args[1], args[0]):
            return args[0]
        if func is aten.nonzero.default and args[0].device.type == "meta":
            return self._nonzero(args[0])
        if func is aten.index.Tensor and args[0].device.type == "meta":
            return self._index(*args)
        if func is aten._grouped_mm.default and args[0].is_meta:  # noqa: SLF001
            return _grouped(*args)
        if self.logs and func is aten._local_scalar_dense.default and args[0].is_meta:  # noqa: SLF001
            return 0
        if self.mixed and func is aten._to_copy.default and _is_grid(args[0]):  # noqa: SLF001
            return args[0]
        if self.mixed and _is_mixed(args, kwargs):
            args, kwargs = tree_map_only(torch.Tensor, _on_meta, (args, kwargs))
            return func(*args, **kwargs)
        return NotImplemented

    def _count(self, mask: torch.Tensor) -> int:
        """The True elements in a mask over (batch, sequence) or (batch, sequence, hidden)."""
        if self.labels is not None and mask.dim() == 2 and mask.numel() == self.labels:
            return self.scored
        return self.places * (mask.shape[2] if mask.dim() > 2 else 1)

    def _nonzero(self, mask: torch.Tensor) -> torch.Tensor:
        shape = self._count(mask), mask.dim()
        return torch.empty(shape, dtype=torch.long, device="meta")

    def _index(self, value: torch.Tensor, indices: list[torch.Tensor | None]) -> Any:
        first = indices[0] if indices else None
        if first is None or first.dtype != torch.bool or len(indices) > 1:
            return NotImplemented
        rest = value.shape[first.dim() :]
        return torch.empty(self._count(first), *rest, dtype=value.dtype, device="meta")


def _grouped(
    left: torch.Tensor, right: torch.Tensor, offsets: torch.Tensor, *_: Any
) -> torch.Tensor:
    """The result of a grouped product in any dtype; torch's rule of shapes knows bf16 alone.

    torch 2.13 `aten/src/ATen/native/cuda/GroupedBlas.cpp`, `_grouped_mm_cuda`: others go one group
    after the other. Of two matrices it makes one product a group.
    """
    groups = offsets.shape if left.dim() == right.dim() else ()
    return left.new_empty(*groups, left.shape[-2], right.shape[-1])


def _is_grid(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds integers on the CPU, which the model reads."""
    return tensor.device.type == "cpu" and not tensor.is_floating_point()


def _leaves(source: Any, target: torch.Tensor) -> bool:
    """Whether an operation copies numbers of a meta tensor, which holds none, to the host."""
    return bool(target.device.type == "cpu" and source.device.type == "meta")


def _is_mixed(args: Any, kwargs: Any) -> bool:
    """Whether an operation combines tensors of the batch's grids with others."""
    devices = {
        each.device.type
        for each in tree_leaves((args, kwargs))
        if isinstance(each, torch.Tensor) and each.dim()
    }
    return len(devices) > 1


def _on_meta(value: torch.Tensor) -> torch.Tensor:
    if value.device.type == "meta":
        return value
    return torch.empty_like(value, device="meta")
