"""Run two steps of a subject on one process and record the second."""

import importlib.metadata
import time
from contextlib import ExitStack, nullcontext
from typing import Any

import torch

from tunec.compiler.tracing.live.adapter_merge import merge
from tunec.compiler.tracing.live.batches import batch_of, values_of
from tunec.compiler.tracing.live.evaluation import evaluate
from tunec.compiler.tracing.live.grpo import Trained, go_on
from tunec.compiler.tracing.live.kernels import as_on_gpu, replaced
from tunec.compiler.tracing.live.model_builder import build, reference_of
from tunec.compiler.tracing.live.offloading import offloading
from tunec.compiler.tracing.live.optimizers import Steps, optimizer_of
from tunec.compiler.tracing.live.step import (
    Loss,
    answers_of,
    autocast_of,
    embeddings_of,
    enter,
    fake_ranks,
    loss_of,
    name_batch,
    name_model,
    there_and_back,
    watch_gradients,
)
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.live.trl_loss import tiles_as_on_gpu
from tunec.compiler.tracing.recording import Trace, traced_phases
from tunec.compiler.tracing.subject import Subject

_PACKAGES = ("torch", "transformers", "diffusers", "peft", "deepspeed", "accelerate", "trl")


def run(subject: Subject) -> Trace:
    """Trace a subject on the engine of its layout.

    Raises Untraceable if that is not possible, and whatever the real model raises.
    """
    began = time.perf_counter()
    with values_of(subject):
        recorded = _recorded(subject)
    phases = traced_phases(recorded.recording)
    return Trace(phases, time.perf_counter() - began, versions())


def _recorded(subject: Subject) -> Storages:
    engine = subject.layout.parallel.engine
    if engine == "deepspeed":
        from tunec.compiler.tracing.live.zero import trace_zero

        return trace_zero(subject)
    if engine == "fsdp":
        from tunec.compiler.tracing.live.fsdp import trace_fsdp

        return trace_fsdp(subject)
    return _trace_plain(subject)


def versions() -> dict[str, str]:
    """Versions of the installed packages that a trace runs."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _trace_plain(subject: Subject) -> Storages:
    model = build(subject)
    storages = Storages(answers_of(subject))
    batch = batch_of(subject, model)
    casts = autocast_of(subject)
    storages.watch(model, casts.forget if casts else lambda: None)
    with (
        as_on_gpu(casts),
        storages.resizing(),
        storages,
        ExitStack() as stack,
    ):
        name_model(storages, model)
        name_batch(storages, batch, subject.layout.batch.accumulation)
        stack.enter_context(tiles_as_on_gpu(subject))
        reference = reference_of(subject)
        if reference is not None:
            name_model(storages, reference)
        run_model = _shared(subject, model, stack) if _is_ddp(subject) else model
        parameters = [each for each in model.parameters() if each.requires_grad]
        watch_gradients(storages, model)
        steps = optimizer_of(subject, parameters, embeddings_of(model), model)
        loss = loss_of(subject, run_model, batch, reference)
        moved = stack.enter_context(offloading(subject, storages, run_model))
        for last in (False, True):
            _step(subject, storages, loss, steps, (casts or nullcontext(), moved), measured=last)
            for each in parameters:
                each.grad = None
        go_on(subject, storages, Trained(model, run_model, reference, casts or nullcontext()))
        evaluate(subject, storages, model, run_model, casts or nullcontext())
        merge(subject, storages, model)
    return storages


def _step(
    subject: Subject,
    storages: Storages,
    loss: Loss,
    steps: Steps,
    contexts: tuple[Any, Any],
    *,
    measured: bool,
) -> None:
    """One optimizer step; two micro batches are enough to show a long accumulation.

    `contexts`: the context of each pass, and the context of a whole micro batch.
    """
    casts, moved = contexts
    for _ in range(min(subject.layout.batch.accumulation, 2)):
        with moved:
            there_and_back(storages, loss, casts, measured=measured)
    enter(storages, "optimizer step", measured=measured)
    steps.step()
    for each in steps.tensors():
        storages.name(each, "optimizer states")


def _is_ddp(subject: Subject) -> bool:
    parallel = subject.layout.parallel
    return parallel.engine == "ddp" and parallel.data > 1


def _shared(subject: Subject, model: torch.nn.Module, stack: ExitStack) -> torch.nn.Module:
    """The real DistributedDataParallel over a fake process group."""
    from torch.nn.parallel import distributed

    stack.enter_context(fake_ranks(subject.layout.parallel.world))
    stack.enter_context(
        replaced(distributed, "_verify_param_shape_across_processes", lambda *_, **__: None)
    )
    # otherwise buckets are made anew, by an order that the ranks read from a tensor
    shared = distributed.DistributedDataParallel(model, find_unused_parameters=True)
    shared.register_comm_hook(None, _reduced)
    return shared


def _reduced(_: object, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
