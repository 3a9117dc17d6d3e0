"""The real engine, started on a small model as the first of the plan's processes.

torch's `fake` process group (torch.testing._internal.distributed.fake_pg) reports the requested
number of processes and lets every collective pass, so `deepspeed.initialize` runs whole on one CPU:
its configuration, optimizer, ZeRO wrappers and schedule are those of the run. Only the native
kernels are replaced, and the CPU is allowed to use fp16: `engine.build` checks what the declared
device supports.
"""

import multiprocessing
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final
from unittest.mock import MagicMock, patch

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.op_builder.builder import OpBuilder

from tunec.compiler.consumers.refusal import OURS, told
from tunec.targets.deepspeed.consumer.engine import builders, optimizer_class
from tunec.targets.deepspeed.consumer.fields import plain

_OURS: Final[tuple[type[BaseException], ...]] = (*OURS, OSError)
"""Errors from a limitation of the local machine, which are no refusal of the configuration."""
_WIDTH: Final = 8


def initialize(question: Mapping[str, Any]) -> dict[str, Any]:
    """Call `deepspeed.initialize` with a ds_config and return the settings of its engine.

    In: `config`, `world_size`; optional `client_optimizer` (a class name of `torch.optim`) and
    `environment`. Out: `version`; `refused` (None, or stage, type and message); `engine`: world,
    batches, stage, clipping, dtype of the parameters, classes of optimizer and wrapper. Runs in a
    separate process, because the engine leaves global state behind.
    """
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_answer, args=(there, dict(question)), daemon=True
    )
    process.start()
    there.close()
    try:
        found: dict[str, Any] = here.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the engine's process ended with {process.exitcode}") from None
    process.join()
    if "fault" in found:
        raise RuntimeError(found["fault"])
    return {"version": deepspeed.__version__, "refused": None, "engine": None, **found}


def _answer(there: Connection, question: Mapping[str, Any]) -> None:
    try:
        there.send({"engine": _started(question)})
    except _OURS as fault:
        there.send({"fault": f"{type(fault).__name__}: {fault}"})
    except Exception as fault:  # noqa: BLE001  whatever it raises is its answer
        there.send({"refused": told("initialize", fault)})


def _started(question: Mapping[str, Any]) -> dict[str, Any]:
    world = question.get("world_size", 1)
    module = torch.nn.Sequential(torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.Linear(_WIDTH, _WIDTH))
    chosen = optimizer_class(question.get("client_optimizer"))
    client = chosen(module.parameters(), lr=1e-3) if chosen else None
    with _surroundings(world, question.get("environment", {})):
        engine, *_ = deepspeed.initialize(
            model=module,
            model_parameters=list(module.parameters()),
            optimizer=client,
            config=dict(question["config"]),
        )
        return _described(engine)


def _described(engine: Any) -> dict[str, Any]:
    return {
        "world_size": torch.distributed.get_world_size(),
        "train_batch_size": engine.train_batch_size(),
        "train_micro_batch_size_per_gpu": engine.train_micro_batch_size_per_gpu(),
        "gradient_accumulation_steps": engine.gradient_accumulation_steps(),
        "gradient_clipping": engine.gradient_clipping(),
        "zero_stage": engine.zero_optimization_stage(),
        "parameters": sorted({plain(each.dtype) for each in engine.module.parameters()}),
        "optimizer": type(engine.basic_optimizer).__name__ if engine.basic_optimizer else None,
        "wrapper": type(engine.optimizer).__name__ if engine.optimizer else None,
        "scheduler": type(engine.lr_scheduler).__name__ if engine.lr_scheduler else None,
    }


@contextmanager
def _surroundings(world: int, environment: Mapping[str, str]) -> Iterator[None]:
    """Simulate `world` processes, replace the native kernels, and allow fp16."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world), "LOCAL_SIZE": str(world)}
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    accelerator = type(get_accelerator())
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {**environment, **ranks, **address}))
        for builder in builders(OpBuilder):
            stack.enter_context(patch.object(builder, "load", lambda *_, **__: MagicMock()))
        for name in ("is_fp16_supported", "is_bf16_supported"):
            stack.enter_context(patch.object(accelerator, name, lambda _: True))
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
        yield
