"""torch's own FSDP, wrapped as accelerate does, on meta tensors and on any number of ranks.

This module has version 2, and the code that both versions share; version 1 is in `fsdp_1`.

The process group is torch's `fake` one, in which collectives do nothing. The CPU's streams stand in
for an accelerator's streams; all memory is allocated on the meta device.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Final

import torch

from tunec.compiler.tracing.live import fsdp_1
from tunec.compiler.tracing.live.batches import batch_of
from tunec.compiler.tracing.live.checkpoint import save_sharded_by_fsdp
from tunec.compiler.tracing.live.evaluation import evaluate
from tunec.compiler.tracing.live.grpo import Trained, go_on
from tunec.compiler.tracing.live.host_shards import moving_shards, to_host
from tunec.compiler.tracing.live.host_units import moving_units
from tunec.compiler.tracing.live.kernels import as_on_gpu, replaced
from tunec.compiler.tracing.live.model_builder import build
from tunec.compiler.tracing.live.optimizers import Steps, optimizer_of
from tunec.compiler.tracing.live.step import (
    answers_of,
    autocast_of,
    enter,
    fake_ranks,
    loss_of,
    name_batch,
    name_model,
    pattern,
    there_and_back,
)
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.live.trl_loss import tiles_as_on_gpu
from tunec.compiler.tracing.subject import Subject, Untraceable

_PACKAGE: Final = "torch.distributed.fsdp"
_INIT: Final = f"{_PACKAGE}._fully_shard._fsdp_init"
_GROUP: Final = f"{_PACKAGE}._fully_shard._fsdp_param_group"


def trace_fsdp(subject: Subject) -> Storages:
    """Record the second step of a model under FSDP. Raises Untraceable if meta cannot show it."""
    _refuse(subject)
    flat = subject.layout.fsdp.version == 1
    model = build(subject)
    storages = Storages(answers_of(subject))
    casts = autocast_of(subject)
    storages.watch(model, casts.forget if casts else lambda: None)
    with ExitStack() as stack:
        stack.enter_context(fake_ranks(subject.layout.parallel.world))
        stack.enter_context(_meta_streams())
        stack.enter_context(fsdp_1.on_meta(subject, _HANDLE) if flat else nullcontext())
        stack.enter_context(as_on_gpu(casts))
        stack.enter_context(storages.resizing())
        stack.enter_context(storages)
        name_model(storages, model)
        batch = batch_of(subject, model)
        name_batch(storages, batch, subject.layout.batch.accumulation)
        moved = subject.layout.fsdp.offload_params
        if moved:
            stack.enter_context((moving_units if flat else moving_shards)(storages))
        model = fsdp_1.sharded(subject, model) if flat else _sharded(subject, model)
        if moved and not flat:
            to_host(model)
        (fsdp_1.name_weights if flat else _name_weights)(storages, model)
        parameters = [each for each in model.parameters() if each.requires_grad]
        steps = _LocalSteps(subject, parameters)
        stack.enter_context(tiles_as_on_gpu(subject))
        loss = loss_of(subject, model, batch)
        for last in (False, True):
            _step(subject, storages, model, (loss, steps, casts or nullcontext()), measured=last)
            for each in parameters:
                each.grad = None
            (fsdp_1.name_units if flat else _name_units)(storages, model)
        save_sharded_by_fsdp(subject, storages, model)
        go_on(subject, storages, Trained(model, model, None, casts or nullcontext()))
        evaluate(subject, storages, model, model, casts or nullcontext())
    return storages


def _refuse(subject: Subject) -> None:
    if subject.layout.parallel.tensor > 1 or subject.layout.parallel.sequence > 1:
        raise Untraceable("only data parallel ranks are traced")
    if subject.workload.quantization.format == "int8":
        raise Untraceable("FSDP cannot shard int8 weights, whose scales are no parameters")


def _sharded(subject: Subject, model: torch.nn.Module) -> Any:
    """The model as `Accelerator.prepare` leaves it (accelerate 1.15 `_prepare_fsdp2`)."""
    from accelerate.utils import fsdp_utils

    accelerator = _accelerator(subject)
    if subject.layout.fsdp.checkpointing:
        model = fsdp_utils.fsdp2_apply_ac(accelerator, model)
    return fsdp_utils.fsdp2_prepare_model(accelerator, model)


def _accelerator(subject: Subject) -> Any:
    """The attributes that accelerate's functions read of an Accelerator."""
    from accelerate.utils import FullyShardedDataParallelPlugin

    fsdp = subject.layout.fsdp
    compute = subject.workload.precision.compute
    mixed = compute if subject.layout.states.autocast else "no"
    policies = {"transformer": "transformer_based_wrap", "size": "size_based_wrap"}
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=fsdp.sharding in ("full", "hybrid"),
        auto_wrap_policy=policies.get(fsdp.wrap, "no_wrap"),
        transformer_cls_names_to_wrap=list(fsdp.wrap_classes) or None,
        min_num_params=fsdp.min_parameters,
        cpu_offload=fsdp.offload_params,
        activation_checkpointing=fsdp.checkpointing,
        cpu_ram_efficient_loading=False,
    )
    if mixed != "no":
        plugin.set_mixed_precision(mixed)
    return SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision=mixed,
        is_main_process=False,
        device=torch.device("meta"),
        **_mesh(subject),
    )


def _mesh(subject: Subject) -> dict[str, Any]:
    """The replica and shard dimensions of accelerate's mesh; empty if sharding is not hybrid."""
    layout = subject.layout
    if layout.fsdp.sharding != "hybrid" or layout.nodes == 1:
        return {}
    from torch.distributed.device_mesh import init_device_mesh

    names = "dp_replicate", "dp_shard"
    sizes = layout.nodes, layout.parallel.data // layout.nodes
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    return {
        "torch_device_mesh": mesh,
        "parallelism_config": SimpleNamespace(fsdp_dim_names=names),
    }


def _step(
    subject: Subject, storages: Storages, model: Any, run: tuple[Any, Steps, Any], *, measured: bool
) -> None:
    """One optimizer step; three micro batches are enough to show a long accumulation.

    Gradients of all but the last stay unreduced (accelerate 1.15 `Accelerator.no_sync`, which the
    Trainer enters for them), and the second one's are added to those of the first.
    """
    loss, steps, casts = run
    batches = min(subject.layout.batch.accumulation, 3)
    for number in range(batches):
        with _syncing(subject, model, last=number == batches - 1):
            there_and_back(storages, loss, casts, measured=measured)
    enter(storages, "optimizer step", measured=measured)
    torch.empty((), device="meta")  # a fused step makes nothing, and a phase begins with an event
    if subject.layout.fsdp.offload_params:
        return  # on the host
    steps.step()
    for each in steps.tensors():
        storages.name(each, "optimizer states")


def _syncing(subject: Subject, model: Any, *, last: bool) -> AbstractContextManager[Any]:
    if subject.layout.fsdp.version == 1:
        return fsdp_1.syncing(model, last=last)
    model.set_requires_gradient_sync(last)
    return nullcontext()


class _LocalSteps:
    """The optimizer over this rank's shards, equivalent to its operations on DTensors."""

    def __init__(self, subject: Subject, parameters: list[torch.nn.Parameter]) -> None:
        self.sharded = parameters
        self.shards = [torch.nn.Parameter(_local(each)) for each in parameters]
        self.steps = optimizer_of(subject, self.shards)

    def step(self) -> Any:
        for whole, shard in zip(self.sharded, self.shards, strict=True):
            shard.grad = None if whole.grad is None else _local(whole.grad)
        done = self.steps.step()
        for shard in self.shards:
            shard.grad = None
        return done

    def tensors(self) -> Any:
        return self.steps.tensors()


def _local(value: torch.Tensor) -> torch.Tensor:
    held: torch.Tensor = getattr(value, "_local_tensor", value).detach()
    return held


def _name_weights(storages: Storages, model: torch.nn.Module) -> None:
    for name, each in model.named_parameters():
        if _local(each).device.type == "meta":
            storages.follow(_local(each), "parameter", "weights")
            storages.name(_local(each), "weights", pattern(name))


def _name_units(storages: Storages, model: torch.nn.Module) -> None:
    """Name the storages of whole parameters, which every gathering fills again."""
    for module in model.modules():
        if hasattr(module, "_get_fsdp_state"):
            for group in module._get_fsdp_state()._fsdp_param_groups:  # noqa: SLF001
                for parameter in group.fsdp_params:
                    for whole in parameter.all_gather_outputs:
                        storages.name(whole, "weights")


class _Stream(torch.cpu.Stream):  # type: ignore[misc]  # torch is not typed
    """The CPU's stream, which never has pending work, with the events that FSDP requests."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def record_event(self) -> Any:
        return torch.cpu.Event()

    def synchronize(self) -> None:
        """Do nothing: no work is pending."""


_HANDLE: Final = SimpleNamespace(
    Stream=_Stream,
    Event=torch.cpu.Event,
    stream=torch.cpu.stream,
    current_stream=lambda *_: _Stream(),
    current_device=torch.cpu.current_device,
    synchronize=lambda *_: None,
)


@contextmanager
def _meta_streams() -> Iterator[None]:
    """Let FSDP allocate its buffers on the meta device, and wait for streams of the CPU."""
    importlib.import_module(_INIT)
    group = importlib.import_module(_GROUP)
    with ExitStack() as stack:
        for name in [name for name in sys.modules if name.startswith(_PACKAGE)]:
            module = sys.modules[name]
            if hasattr(module, "_get_device_from_mesh"):
                stack.enter_context(replaced(module, "_get_device_from_mesh", _on_meta))
            if hasattr(module, "_get_device_handle"):
                stack.enter_context(replaced(module, "_get_device_handle", lambda *_: _HANDLE))
        stack.enter_context(
            replaced(group.FSDPParamGroup, "_validate_no_meta_params", lambda _: None)
        )
        stack.enter_context(replaced(torch.accelerator, "current_stream", lambda *_: _Stream()))
        yield


def _on_meta(_: Any) -> torch.device:
    return torch.device("meta")
