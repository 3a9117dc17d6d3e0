"""FSDP 2's shards in host RAM: torch's own code, on tensors there that hold one element.

What it copies to the device is made anew there and followed; what it copies back is one element
again, shaped like the shard. Sums on the host are not made.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.live.storages import Storages

_GROUP: Final = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
_CAST: Final = torch.ops.aten._to_copy.default  # noqa: SLF001  what `Tensor.to` calls
_SUM: Final = torch.ops.aten.add_.Tensor


def to_host(model: torch.nn.Module) -> None:
    """Put every unit's shards where `CPUOffloadPolicy` keeps them."""
    for module in model.modules():
        if hasattr(module, "_get_fsdp_state"):
            for group in module._get_fsdp_state()._fsdp_param_groups:  # noqa: SLF001
                group._reset_sharded_params = True  # noqa: SLF001  they are what they shall be
                for parameter in group.fsdp_params:
                    _move(parameter)


def _move(parameter: Any) -> None:
    known = parameter.sharded_param
    shard = parameter.to_sharded_dtensor(_on_host(known._local_tensor))  # noqa: SLF001
    parameter._sharded_param_data = _on_host(parameter._sharded_param_data)  # noqa: SLF001
    parameter.sharded_param = torch.nn.Parameter(shard, requires_grad=known.requires_grad)
    parameter._setattr_on_modules(parameter.sharded_param)  # noqa: SLF001


def _on_host(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(1, dtype=like.dtype, device="cpu").expand(like.shape)


@contextmanager
def moving_shards(storages: Storages) -> Iterator[None]:
    """Let shards come from the host, and gradients go there."""
    group = importlib.import_module(_GROUP).FSDPParamGroup
    others = storages.answer

    def answer(func: Any, args: Any, kwargs: Any) -> Any:
        if func is _CAST and args[0].device.type == "meta" and _goes(kwargs):
            return _on_host(args[0])
        if func is _SUM and args[0].device.type == "cpu" and args[0].dim():
            return args[0]
        return NotImplemented if others is None else others(func, args, kwargs)

    storages.answer, storages.passes_host = answer, True
    with replaced(group, "_validate_cpu_offload_params", lambda _: None):
        yield
    storages.answer, storages.passes_host = others, False


def _goes(kwargs: Any) -> bool:
    return str(kwargs.get("device")) == "cpu"
