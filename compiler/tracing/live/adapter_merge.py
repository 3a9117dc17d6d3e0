"""Merging after the traced step: PEFT adds the adapters to the base and unloads them."""

import gc
from typing import Any

import torch

from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.live.quantized_merge import repacking
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.recording import MERGING
from tunec.compiler.tracing.subject import Subject


def merge(subject: Subject, storages: Storages, model: Any) -> None:
    """Record the merging of a subject that requests it; nothing can run after it."""
    if subject.workload.adapter.merge != "device":
        return
    gc.collect()
    storages.recording.begin(MERGING)
    # whether two weights are one is told by addresses, which meta tensors do not have
    with replaced(torch.Tensor, "data_ptr", lambda _: 0), repacking(subject):
        model.merge_and_unload()
    storages.recording.begin("")
