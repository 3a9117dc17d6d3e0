"""Bytes alive while a model that a test built runs, by the recorder of `tunec trace`."""

import gc
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from tunec.compiler.tracing.live.kernels import as_on_gpu
from tunec.compiler.tracing.live.step import backward, name_model
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.recording import traced_phases


@dataclass
class Peaks:
    """The most bytes alive in each phase."""

    static: int
    forward: int
    kept: int
    backward: int


def peaks_of(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Peaks:
    """Run forward and backward on tensors without data."""
    gc.collect()
    storages = Storages()
    with as_on_gpu(), storages:
        name_model(storages, model)
        static = alive(storages)
        storages.begin("forward")
        result = loss()
        gc.collect()
        kept = alive(storages)
        storages.begin("backward")
        backward(result)
    peaks = {each.name: each.peak_bytes for each in traced_phases(storages.recording)}
    return Peaks(static, peaks["forward"], kept, peaks["backward"])


@contextmanager
def following(tensors: Iterable[torch.Tensor]) -> Any:
    """Follow what lies there already and all that is made."""
    with Storages() as storages:
        for each in tensors:
            storages.follow(each, "input", "inputs")
        yield storages


def alive(storages: Storages) -> int:
    """Bytes alive now."""
    return sum(each.bytes for each in storages.alive.values())


def highest(storages: Storages, phase: str) -> int:
    """Bytes alive at the highest moment of a phase."""
    phases = {each.name: each.peak_bytes for each in traced_phases(storages.recording)}
    return phases[phase]
