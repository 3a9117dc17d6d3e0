"""Evaluation after the traced step: a batch's loss, and answers by transformers' `generate`."""

import gc
from typing import Any

import torch

from tunec.compiler.tracing.live.batches import batch_of
from tunec.compiler.tracing.live.generation import Casts, read_and_write
from tunec.compiler.tracing.live.kernels import register_attention
from tunec.compiler.tracing.live.step import loss_of
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.recording import EVALUATION, PROMPT, WRITING
from tunec.compiler.tracing.subject import Subject, Untraceable
from tunec.schemas.frozen import replace


def evaluate(
    subject: Subject, storages: Storages, model: Any, run_model: Any, casts: Casts
) -> None:
    """Record evaluation if the subject has it; `run_model` is the model as its engine wraps it.

    A batch is padded if it has several samples, whether or not training's batch was.
    """
    if not subject.evaluates:
        return
    batch = replace(subject.layout.batch, micro=subject.layout.batch.evaluation)
    alone = replace(subject, layout=replace(subject.layout, batch=batch))
    register_attention(padded=alone.is_padded, flash=alone.is_flash)
    model.eval()
    gc.collect()
    with torch.no_grad(), casts:
        storages.recording.begin(EVALUATION)
        loss_of(alone, run_model, batch_of(alone, model))()
    asked = subject.workload.evaluated
    if asked is not None and subject.workload.architecture.source:
        raise Untraceable("answers of a model that hears are not traced")
    if asked is not None:
        recorded = (batch.evaluation, (PROMPT, WRITING))
        read_and_write(alone, storages, model, asked, recorded, casts)
