"""torch's own FullyShardedDataParallel on meta tensors, wrapped as accelerate and the Trainer do.

FSDP 1 requires two things of an accelerator: streams, for which the CPU's stand in, and whether two
tensors share memory, which FSDP 1 reads from addresses that meta tensors do not have.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Final

import torch

from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.subject import Subject

_PACKAGE: Final = "torch.distributed.fsdp"
_STRATEGIES: Final = {
    "full": "FULL_SHARD",
    "grad_op": "SHARD_GRAD_OP",
    "hybrid": "HYBRID_SHARD",
    "none": "NO_SHARD",
}
_PREFETCH: Final = {"pre": "BACKWARD_PRE", "post": "BACKWARD_POST"}


def sharded(subject: Subject, model: torch.nn.Module) -> Any:
    """The model as `Accelerator.prepare_model` leaves it (accelerate 1.15)."""
    fsdp = importlib.import_module(_PACKAGE)
    asked = subject.layout.fsdp
    shards = fsdp.FullyShardedDataParallel(
        model,
        sharding_strategy=fsdp.ShardingStrategy[_STRATEGIES[asked.sharding]],
        auto_wrap_policy=_policy(subject, model),
        mixed_precision=_precision(subject),
        backward_prefetch=_prefetch(asked.backward_prefetch),
        forward_prefetch=asked.forward_prefetch,
        use_orig_params=asked.use_orig_params,
        limit_all_gathers=True,
        cpu_offload=fsdp.CPUOffload(offload_params=asked.offload_params),
        device_id=torch.device("meta"),
    )
    if asked.checkpointing:
        _recompute(subject, shards)
    if subject.layout.states.autocast:
        _widen(shards)
    return shards


def _prefetch(asked: str) -> Any:
    kind = importlib.import_module(_PACKAGE).BackwardPrefetch
    return kind[_PREFETCH[asked]] if asked in _PREFETCH else None


def _precision(subject: Subject) -> Any:
    """The precision of accelerate 1.15 `utils/dataclasses.py`, `set_mixed_precision`: one dtype."""
    if not subject.layout.states.autocast:
        return None
    from tunec.compiler.tracing.live.model_builder import DTYPES

    dtype = DTYPES[subject.workload.precision.compute]
    kind = importlib.import_module(_PACKAGE).MixedPrecision
    return kind(param_dtype=dtype, reduce_dtype=dtype, buffer_dtype=dtype)


def _policy(subject: Subject, model: torch.nn.Module) -> Any:
    """The wrapping policy: accelerate's by class or size, or peft's, with a unit per adapter.

    transformers 5.23 `distributed/fsdp.py`, `update_fsdp_plugin_peft`.
    """
    if subject.is_adapted:
        from peft.utils.other import fsdp_auto_wrap_policy

        return fsdp_auto_wrap_policy(model)
    return _plain_policy(subject, model)


def _plain_policy(subject: Subject, model: torch.nn.Module) -> Any:
    from accelerate.utils import FullyShardedDataParallelPlugin

    asked = subject.layout.fsdp
    policies = {"transformer": "transformer_based_wrap", "size": "size_based_wrap"}
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=1,
        auto_wrap_policy=policies.get(asked.wrap, "no_wrap"),
        transformer_cls_names_to_wrap=list(asked.wrap_classes) or None,
        min_num_params=asked.min_parameters,
        cpu_ram_efficient_loading=False,
    )
    plugin.set_auto_wrap_policy(model)
    return plugin.auto_wrap_policy


def _recompute(subject: Subject, model: Any) -> None:
    """Checkpoint each unit of layers, as accelerate does for `activation_checkpointing`."""
    from functools import partial

    wrapper = importlib.import_module("torch.distributed.algorithms._checkpoint.checkpoint_wrapper")
    wrapper.apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=partial(
            wrapper.checkpoint_wrapper, checkpoint_impl=wrapper.CheckpointImpl.NO_REENTRANT
        ),
        auto_wrap_policy=_plain_policy(subject, model),
    )


def _widen(model: Any) -> None:
    """Keep shards of trained parameters in fp32, as accelerate does in mixed precision.

    accelerate 1.15 `accelerator.py`, `prepare_model`, which skips meta tensors.
    """
    for unit in type(model).fsdp_modules(model):
        if unit._has_params and unit._flat_param.requires_grad:  # noqa: SLF001
            unit._flat_param.data = unit._flat_param.data.to(torch.float32)  # noqa: SLF001
            unit._handle._orig_param_dtype = torch.float32  # noqa: SLF001


def syncing(model: Any, *, last: bool) -> AbstractContextManager[Any]:
    """The context of one micro batch: gradients of all but the last stay unreduced."""
    context: AbstractContextManager[Any] = nullcontext() if last else model.no_sync()
    return context


def name_weights(storages: Storages, model: Any) -> None:
    """Follow and name each unit's shard."""
    for unit in type(model).fsdp_modules(model):
        if unit._has_params:  # noqa: SLF001
            storages.follow(unit._flat_param, "parameter", "weights")  # noqa: SLF001
            storages.name(unit._flat_param, "weights", "shard")  # noqa: SLF001


def name_units(storages: Storages, model: Any) -> None:
    """Name the storages of whole units, which every gathering fills again."""
    for unit in type(model).fsdp_modules(model):
        if unit._has_params:  # noqa: SLF001
            flat = unit._flat_param  # noqa: SLF001
            for name in ("_full_param_padded", "_mp_shard", "_full_prec_full_param_padded"):
                if hasattr(flat, name):
                    storages.name(getattr(flat, name), "weights")


@contextmanager
def on_meta(subject: Subject, handle: SimpleNamespace) -> Iterator[None]:
    """Let FSDP 1 treat the meta device as an accelerator with the streams of `handle`."""
    for name in ("_init_utils", "_flat_param", "_runtime_utils", "fully_sharded_data_parallel"):
        importlib.import_module(f"{_PACKAGE}.{name}")
    parallel, nodes = subject.layout.parallel, subject.layout.nodes
    answers = SimpleNamespace(
        **vars(handle) | {"is_available": lambda: True, "synchronize": lambda *_: None},
        device_count=lambda: max(parallel.data // nodes, 1),
    )

    def give_handle(state: Any, *_: Any) -> Any:
        state._device_handle = answers  # noqa: SLF001
        return state

    instead = {
        "_init_device_handle": give_handle,
        "_need_to_materialize_module": lambda *_: (False, False),
        "_get_device_from_device_id": lambda *_: torch.device("meta"),
        "_same_storage": _same_storage,
        "_data_ptr_allocated": lambda tensor: tensor.untyped_storage().nbytes() > 0,
    }
    with ExitStack() as stack:
        for module in [sys.modules[name] for name in sys.modules if name.startswith(_PACKAGE)]:
            for name, value in instead.items():
                if hasattr(module, name):
                    stack.enter_context(replaced(module, name, value))
        common = importlib.import_module(f"{_PACKAGE}._common_utils")
        stack.enter_context(
            replaced(common._FSDPDeviceHandle, "from_device", lambda *_: answers)  # noqa: SLF001
        )
        yield


def _same_storage(one: torch.Tensor, other: torch.Tensor) -> bool:
    first, second = one.untyped_storage(), other.untyped_storage()
    return bool(first._cdata == second._cdata)  # noqa: SLF001
