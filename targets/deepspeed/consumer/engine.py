"""The checks that DeepSpeed only makes when it builds its engine, by the engine's own methods.

The engine is not initialised, because that needs devices and a process group: a bare object of the
real class gets the real configuration, and its methods are called one by one. Three things are
replaced: the native kernels (constructed but never called), the three wrappers that would allocate
and communicate, and the device's properties, which the question gives.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import MagicMock, patch

import deepspeed
import deepspeed.runtime.engine as runtime_engine
import torch
from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator
from deepspeed.ops.op_builder.builder import OpBuilder
from deepspeed.runtime.engine import DeepSpeedEngine

from tunec.compiler.consumers.devices import Device, pretended
from tunec.compiler.consumers.refusal import OURS, stage
from tunec.targets.deepspeed.consumer.fields import plain
from tunec.targets.deepspeed.consumer.recorder import world

_WRAPPERS: Final = {
    "_configure_zero_optimizer": "zero",
    "_configure_fp16_optimizer": "fp16",
    "_configure_bf16_optimizer": "bf16",
}
# What a bare engine or this machine lacks shows as one of these; it is no refusal of the
# configuration. RecursionError: `DeepSpeedEngine.__getattr__` before 0.19 looks for a missing
# attribute in itself.
_OURS: Final[tuple[type[BaseException], ...]] = (*OURS, AttributeError, OSError)
# All environment variables that change what the checks say: `is_fp16_supported` in
# accelerator/cuda_accelerator.py.
_ENVIRONMENT: Final = ("DS_ALLOW_DEPRECATED_FP16",)


def build(
    config: Any,
    device: Device,
    client_optimizer: str | None,
    environment: Mapping[str, str],
    steps: int,
) -> dict[str, Any]:
    """Run a bare engine's checks and return the settings that it would run with.

    `client_optimizer` names a class of `torch.optim` that the training script passes in; if it is
    None the configuration decides. `steps` is the number of learning rates to return. Raises
    Refused.
    """
    with _replaced(device, environment) as chosen, world(config.world_size):
        engine = _bare(config, client_optimizer)
        _step("sanity", engine._do_sanity_check)  # noqa: SLF001
        parameters = list(engine.module.parameters())
        _step("optimizer", _configure_optimizer, engine, parameters)
        _step("scheduler", _configure_scheduler, engine)
        model, accumulation = _step("precision", engine.get_data_types)
    return {
        "model_dtype": plain(model),
        "gradient_accumulation_dtype": plain(accumulation),
        "optimizer": type(engine.basic_optimizer).__name__ if engine.basic_optimizer else None,
        "wrapper": chosen[0] if chosen else None,
        "scheduler": type(engine.lr_scheduler).__name__ if engine.lr_scheduler else None,
        "rates": _rates(engine, steps),
    }


def _step(name: str, action: Any, *arguments: Any) -> Any:
    with stage(name, _OURS):
        return action(*arguments)


def optimizer_class(name: str | None) -> Any:
    """The class of `torch.optim` that a training script would bring; None if no name is given."""
    return getattr(torch.optim, name) if name else None


def _bare(config: Any, client_optimizer: str | None) -> Any:
    """An engine of the real class with what its checks read, and one layer as the model."""
    engine = DeepSpeedEngine.__new__(DeepSpeedEngine)
    torch.nn.Module.__init__(engine)
    module = torch.nn.Linear(2, 2)
    # since 0.17.6 `deepspeed.initialize` says which parameters Muon is to have
    getattr(deepspeed, "set_optimizer_flags", lambda *_: None)(config, module)
    kind = optimizer_class(client_optimizer)
    engine.__dict__ |= {
        "_config": config,
        "client_optimizer": kind and kind(module.parameters(), lr=1e-3),
        "client_lr_scheduler": None,
        "basic_optimizer": None,
        "optimizer": None,
        "lr_scheduler": None,
        "global_rank": 0,
        "has_moe_layers": False,
        "pipeline_parallelism": False,
        "zenflow": getattr(config.zero_config, "zenflow", None) is not None,
        "overlap_step": False,
        "checkpoint_engine": None,
        "module": module,
    }
    return engine


def _configure_optimizer(engine: Any, parameters: list[Any]) -> None:
    """Configure the optimizer as `DeepSpeedEngine.__init__` does: none unless one is named."""
    if engine.client_optimizer is not None or engine.optimizer_name():
        engine._configure_optimizer(engine.client_optimizer, parameters)  # noqa: SLF001


def _configure_scheduler(engine: Any) -> None:
    if engine.optimizer is not None:
        engine._configure_lr_scheduler()  # noqa: SLF001


def _rates(engine: Any, steps: int) -> list[float]:
    """The first parameter group's learning rate in each of the first `steps` optimizer steps."""
    if engine.optimizer is None:
        return []
    found = []
    for _ in range(steps):
        found.append(float(engine.optimizer.param_groups[0]["lr"]))
        if engine.lr_scheduler is not None:
            engine.lr_scheduler.step()
    return found


def builders(kind: type[Any]) -> Iterator[type[Any]]:
    """The subclasses that load a kernel; each must be replaced, since on a CPU some raise."""
    if "load" in vars(kind):
        yield kind
    classes: list[type[Any]] = kind.__subclasses__()
    for each in classes:
        yield from builders(each)


@contextmanager
def _replaced(device: Device, environment: Mapping[str, str]) -> Iterator[list[str]]:
    """Install the stand-ins; the yielded list receives the name of the wrapper that is called."""
    chosen: list[str] = []
    with ExitStack() as stack:
        for builder in builders(OpBuilder):
            stack.enter_context(patch.object(builder, "load", lambda *_, **__: MagicMock()))
        for name, wrapper in _WRAPPERS.items():
            stack.enter_context(patch.object(DeepSpeedEngine, name, _wrapping(wrapper, chosen)))
        allowed = {name: environment[name] for name in _ENVIRONMENT if name in environment}
        stack.enter_context(patch.dict(os.environ, allowed))
        stack.enter_context(pretended(device))
        # The accelerator is the real one for CUDA, so that its own `is_fp16_supported` decides.
        accelerator = CUDA_Accelerator()
        stack.enter_context(patch.object(runtime_engine, "get_accelerator", lambda: accelerator))
        yield chosen


def _wrapping(name: str, chosen: list[str]) -> Any:
    def wrap(_: Any, optimizer: Any, low_precision_dtype: Any = None) -> Any:
        # Since 0.17.6 the fp16 wrapper also serves bfloat16 without ZeRO: DDP_BFLOAT16.
        chosen.append("ddp_bf16" if low_precision_dtype == torch.bfloat16 else name)
        return optimizer

    return wrap
