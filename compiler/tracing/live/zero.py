"""DeepSpeed's own ZeRO code on meta tensors: any model size, any number of ranks, no device.

The CPU's accelerator stands in for the device's, with `meta` as the device's name; the process
group is torch's `fake` one, in which collectives do nothing.
"""

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Final

import torch
from torch.utils._pytree import tree_leaves

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.ir.slots import Zero
from tunec.compiler.tracing.live.adapter_merge import merge
from tunec.compiler.tracing.live.answers import Answers
from tunec.compiler.tracing.live.batches import Batch, batch_of
from tunec.compiler.tracing.live.checkpoint import save_sharded_by_zero
from tunec.compiler.tracing.live.evaluation import evaluate
from tunec.compiler.tracing.live.grpo import Trained, go_on
from tunec.compiler.tracing.live.kernels import as_on_gpu, replaced
from tunec.compiler.tracing.live.model_builder import build, reference_of
from tunec.compiler.tracing.live.muon import block_of, on_meta
from tunec.compiler.tracing.live.optimizers import Steps, optimizer_of
from tunec.compiler.tracing.live.ranks import loss_over_ranks, sharing_ranks
from tunec.compiler.tracing.live.step import (
    Loss,
    answers_of,
    autocast_of,
    enter,
    fake_ranks,
    loss_of,
    name_batch,
    name_model,
    watch_gradients,
)
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.live.trl_loss import tiles_as_on_gpu
from tunec.compiler.tracing.subject import Subject, Untraceable
from tunec.schemas.frozen import replace

_SHARDED: Final = 3
"""The stage of ZeRO that splits parameters."""
_READ: Final = 1024
"""The most elements of a host tensor whose numbers may be read, where they come from a device."""
_MADE: Final = 1 << 20
"""The most elements of a host tensor that is made there, such as the places of a picture's parts,
by which towers divide what they attend to."""


def trace_zero(subject: Subject) -> Storages:
    """Record the second step of a DeepSpeed engine. Raises Untraceable for offloaded state."""
    _refuse(subject)
    subject = _in_bf16(subject)
    model = build(subject)
    storages = Storages()
    storages.answer = HostAnswers(answers_of(subject), storages)
    casts = autocast_of(subject)
    storages.watch(model, casts.forget if casts else lambda: None)
    with ExitStack() as stack:
        stack.enter_context(_quiet_start())
        stack.enter_context(fake_ranks(subject.layout.parallel.world, fullest_rank(subject)))
        stack.enter_context(as_on_gpu(casts))
        stack.enter_context(_meta_accelerator())
        if subject.workload.optimizer.name == "muon":
            stack.enter_context(on_meta())
        unit = stack.enter_context(sharing_ranks(subject, model))
        stack.enter_context(storages.resizing())
        stack.enter_context(storages)
        name_model(storages, model)
        batch = batch_of(subject, model)
        name_batch(storages, batch, subject.layout.batch.accumulation)
        engine = _engine(subject, model, unit)
        _name_weights(storages, model)
        watch_gradients(storages, model)
        stack.enter_context(tiles_as_on_gpu(subject))
        loss = _loss(subject, engine, batch)
        _step(subject, storages, engine, loss, measured=False)
        storages.settle("training state")
        _step(subject, storages, engine, loss, measured=True)
        save_sharded_by_zero(subject, storages, engine)
        go_on(subject, storages, Trained(model, engine, None, casts or nullcontext()))
        evaluate(subject, storages, model, engine, casts or nullcontext())
        merge(subject, storages, model)
    return storages


class HostAnswers:
    """Stand-ins for host memory: tensors that DeepSpeed copies to the CPU, or makes there.

    Small tensors hold numbers, because these are read: zeros where they come from a device. Large
    ones have no data either.
    Tensors that DeepSpeed itself makes on the meta device, to remember shapes, take no memory.
    """

    def __init__(self, others: Answers, storages: Storages) -> None:
        self.others, self.storages = others, storages

    def __call__(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The answer of one operation, or NotImplemented for an operation that needs none."""
        device = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        if device is not None and device.type == "cpu":
            return self._on_host(func, args, kwargs)
        if func is torch.ops.aten.zeros_like.default and device is not None:
            return self.storages.overlook(func(*args, **kwargs))
        return self.others(func, args, kwargs)

    def _on_host(self, func: Any, args: Any, kwargs: Any) -> Any:
        made = func(*args, **(kwargs | {"device": "meta"}))
        comes = any(each.is_meta for each in tree_leaves(args) if isinstance(each, torch.Tensor))
        if made.numel() > (_READ if comes else _MADE):
            return self.storages.overlook(made)
        if comes:
            return torch.zeros(made.shape, dtype=made.dtype, device="cpu")
        return func(*args, **kwargs)


def fullest_rank(subject: Subject) -> int:
    """The rank that the account describes, which is the one that it takes to need the most."""
    found = account(subject.workload, subject.layout)
    return subject.layout.parallel.tensor * found.rank


def _in_bf16(subject: Subject) -> Subject:
    """The run in bf16 where it is in fp16, which is as wide but scales the loss by what it reads.

    All of it, since deepspeed 0.19.8 `runtime/engine.py`, `_configure_distributed_model`, casts
    parameters and leaves buffers in the dtype that they were loaded in.
    """
    states, workload = subject.layout.states, subject.workload
    if states.weights != "fp16":
        return subject
    trainable = "bf16" if states.trainable == "fp16" else states.trainable
    gradients = "bf16" if states.gradients == "fp16" else states.gradients
    states = replace(states, weights="bf16", trainable=trainable, gradients=gradients)
    precision = replace(workload.precision, compute="bf16")
    quantization = replace(workload.quantization, compute="bf16")
    return replace(
        subject,
        workload=replace(workload, precision=precision, quantization=quantization),
        layout=replace(subject.layout, states=states),
    )


def _refuse(subject: Subject) -> None:
    zero = subject.layout.zero
    if zero.offload_optimizer != "none" or zero.offload_param != "none":
        raise Untraceable(
            "meta tensors do not distinguish a device from its host, so offload cannot be traced"
        )


def _step(subject: Subject, storages: Storages, engine: Any, loss: Any, *, measured: bool) -> None:
    for _ in range(min(subject.layout.batch.accumulation, 2)):
        enter(storages, "forward", measured=measured)
        result = loss()
        gc.collect()
        enter(storages, "backward", measured=measured)
        engine.backward(result)
        del result
        enter(storages, "optimizer step", measured=measured)
        engine.step()


def _loss(subject: Subject, engine: Any, batch: Batch) -> Loss:
    reference = reference_of(subject)
    if subject.layout.parallel.sequence > 1:
        return loss_over_ranks(subject, engine, batch)
    return loss_of(subject, engine, batch, reference)


def _engine(subject: Subject, model: torch.nn.Module, unit: Any) -> Any:
    """The engine; `unit`: what DeepSpeed is to ask about ranks that share a sequence."""
    import deepspeed

    trained = [each for each in model.parameters() if each.requires_grad]
    config = _config(subject)
    if subject.workload.optimizer.name == "muon":
        config["optimizer"] = block_of(subject)
        stepped: dict[str, Any] = {"model_parameters": trained}
    else:
        stepped = {"optimizer": _Torch(subject, trained)}
    with _as_under_zero_init(subject):
        return deepspeed.initialize(model=model, config=config, mpu=unit, **stepped)[0]


@contextmanager
def _as_under_zero_init(subject: Subject) -> Iterator[None]:
    """Let adapters keep their own dtype, as they do beside a base that zero.Init has built.

    Here the base is built whole, and deepspeed 0.19.8 `runtime/engine.py`,
    `_cast_module_mixed_precision`, casts each of its parameters.
    """
    states = subject.layout.states
    if subject.layout.zero.stage < _SHARDED or states.trainable == states.weights:
        yield
        return
    maker = importlib.import_module("deepspeed.runtime.engine").DeepSpeedEngine
    name = "_cast_module_mixed_precision"
    cast = getattr(maker, name)

    def without_parameters(engine: Any, _: Any, buffers: Any, __: Any, *others: Any) -> None:
        cast(engine, None, buffers, True, *others)

    with replaced(maker, name, without_parameters):
        yield


def _config(subject: Subject) -> dict[str, Any]:
    layout = subject.layout
    accumulation = min(layout.batch.accumulation, 2)
    shares: dict[str, Any] = {"tensor_parallel": {"autotp_size": layout.parallel.tensor}}
    if layout.parallel.tensor == 1:
        shares = {"train_batch_size": layout.batch.micro * accumulation * layout.parallel.data}
    return {
        **shares,
        "train_micro_batch_size_per_gpu": layout.batch.micro,
        "gradient_accumulation_steps": accumulation,
        "zero_optimization": _zero_section(layout.zero),
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": subject.workload.optimizer.max_grad_norm,
        "bf16": {"enabled": layout.states.weights != "fp32"},
        "data_types": {"grad_accum_dtype": layout.states.gradients},
    }


def _zero_section(zero: Zero) -> dict[str, Any]:
    if zero.stage == 0:  # a plan then says 0 for buckets, which DeepSpeed refuses
        return {"stage": 0}
    section: dict[str, Any] = {
        "stage": zero.stage,
        "overlap_comm": zero.overlap_comm,
        "contiguous_gradients": zero.contiguous_gradients,
        "reduce_scatter": zero.reduce_scatter,
        "reduce_bucket_size": zero.reduce_bucket,
        "allgather_bucket_size": zero.allgather_bucket,
        "stage3_prefetch_bucket_size": zero.prefetch_bucket,
        "stage3_param_persistence_threshold": zero.persistence_threshold,
        "stage3_max_live_parameters": zero.max_live_parameters,
        "stage3_max_reuse_distance": zero.max_reuse_distance,
        "sub_group_size": zero.sub_group_size,
        "zero_hpz_partition_size": zero.hpz_partition,
    }
    if zero.leaf_modules is not None:
        section["leaf_module"] = {"classes": list(zero.leaf_modules)}
    return section


class _Torch(torch.optim.Optimizer):  # type: ignore[misc]  # torch is not typed
    """The optimizer of a plan behind torch's interface, over the tensors that ZeRO provides."""

    def __init__(self, subject: Subject, parameters: list[torch.nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 1e-4})
        self.subject = subject
        self.steps: dict[int, Steps] = {}

    def step(self, _: Any = None) -> None:
        """Step every tensor that has a gradient."""
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    self._steps(each).step()

    def _steps(self, parameter: torch.nn.Parameter) -> Steps:
        key = id(parameter)
        if key not in self.steps:
            self.steps[key] = optimizer_of(self.subject, [parameter])
        return self.steps[key]


def _name_weights(storages: Storages, model: torch.nn.Module) -> None:
    for each in model.parameters():
        storages.name(each, "weights")
        if hasattr(each, "ds_tensor"):
            storages.name(each.ds_tensor, "weights")


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Set the accelerator and the rank for DeepSpeed, before it is imported."""
    plain = dict(os.environ)
    os.environ.update(
        DS_ACCELERATOR="cpu", LOCAL_RANK="0", RANK="0", WORLD_SIZE="1", DEEPSPEED_LOG_LEVEL="error"
    )
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(plain)


@contextmanager
def _meta_accelerator() -> Iterator[None]:
    importlib.import_module("deepspeed.comm.torch")
    from deepspeed.accelerator import get_accelerator

    comm = sys.modules["deepspeed.comm.torch"]
    accelerator = get_accelerator()
    with ExitStack() as stack:
        # zero.Init's own linear layer "will persist unless manually reset"
        own = torch.nn.functional
        stack.enter_context(replaced(own, "linear", own.linear))
        for name, value in (
            ("device_name", lambda *_: "meta"),
            ("current_device_name", lambda: "meta"),
            ("current_device", lambda: "meta"),
            ("on_accelerator", lambda tensor: tensor.device.type == "meta"),
            ("pin_memory", lambda tensor, *_, **__: tensor),
            ("is_fp16_supported", lambda: True),
            # stage_1_and_2.py: weights larger than this would be flattened on the host
            ("available_memory", lambda *_: sys.maxsize),
        ):
            stack.enter_context(replaced(type(accelerator), name, _method(value)))
        stack.enter_context(replaced(comm, "build_shm_op", lambda: None))
        linear = importlib.import_module("deepspeed.runtime.zero.linear")
        stack.enter_context(replaced(linear, "_get_autocast_dtype", lambda _: torch.bfloat16))
        stack.enter_context(replaced(linear, "_is_autocast_enabled", lambda _: False))
        order = importlib.import_module("deepspeed.runtime.zero.partitioned_param_coordinator")
        stack.enter_context(replaced(order, "assert_ints_same_as_other_ranks", lambda _: None))
        sharded = importlib.import_module("deepspeed.runtime.zero.stage3")
        stack.enter_context(replaced(sharded, "defragment", _defragmented))
        yield


def _defragmented(tensors: list[torch.Tensor]) -> torch.Tensor:
    """One buffer for all shards of the parameters.

    deepspeed 0.19.8 `runtime/zero/utils.py`, `defragment`, goes through a buffer on the host, which
    meta tensors cannot distinguish from the device's.
    """
    buffer = torch.empty(sum(t.numel() for t in tensors), dtype=tensors[0].dtype, device="meta")
    places = torch.split(buffer, [each.numel() for each in tensors])
    for tensor, place in zip(tensors, places, strict=True):
        tensor.data = place
    return buffer


def _method(function: Any) -> Any:
    return lambda _self, *args, **options: function(*args, **options)
