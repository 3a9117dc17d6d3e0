"""Evaluation after the traced step: a batch's loss, and answers by transformers' `generate`."""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

import torch

from tunec.compiler.analyses.memory.workload import Generation
from tunec.compiler.tracing.live.batches import Batch, batch_of
from tunec.compiler.tracing.live.kernels import register_attention, replaced
from tunec.compiler.tracing.live.step import loss_of
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.recording import EVALUATION, PROMPT, WRITING
from tunec.compiler.tracing.subject import Subject

_DECODING: Final = {"do_sample": False, "use_cache": True}
"""As a model's own generation_config has it: the Trainer turns the cache off in `config` alone."""
Casts = AbstractContextManager[Any]


def evaluate(
    subject: Subject, storages: Storages, model: Any, run_model: Any, casts: Casts
) -> None:
    """Record evaluation where the subject has one; `run_model`: the model as its engine wraps it.

    A batch is padded where it has several samples, whatever training's was.
    """
    if not subject.evaluates:
        return
    batch = replace(subject.layout.batch, micro=subject.layout.batch.evaluation)
    alone = replace(subject, layout=replace(subject.layout, batch=batch))
    register_attention(padded=alone.is_padded)
    model.eval()
    gc.collect()
    with torch.no_grad(), casts:
        storages.recording.begin(EVALUATION)
        loss_of(alone, run_model, batch_of(alone, model))()
    if subject.workload.evaluated is not None:
        _generate(alone, storages, model, subject.workload.evaluated, casts)


def _generate(
    subject: Subject, storages: Storages, model: Any, asked: Generation, casts: Casts
) -> None:
    """Record the reading of all prompts, and the last token that is written.

    The second is seen in a run of its own, of a prompt that is two tokens short of the whole: what
    the cache holds does not depend on which of its tokens were written.
    """
    rows, read = subject.layout.batch.evaluation, asked.tokens - asked.steps
    apart = subject.workload.architecture.kind == "encoder-decoder"
    storages.recording.begin(PROMPT)
    _written(storages, model, asked, _tokens(rows, read), 1, casts)
    gc.collect()
    storages.recording.begin("")
    hook = inner_of(model).register_forward_pre_hook(
        _second(lambda: storages.recording.begin(WRITING))
    )
    begun = max((asked.steps if apart else asked.tokens) - 2, 1)
    given = _tokens(rows, read if apart else begun)
    if apart:
        given["decoder_input_ids"] = _tokens(rows, begun)["input_ids"]
    _written(storages, model, asked, given, 2, casts)
    hook.remove()
    storages.recording.begin("")


def inner_of(model: Any) -> Any:
    """The model of transformers, where PEFT wraps it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _written(
    storages: Storages, model: Any, asked: Generation, given: Batch, new: int, casts: Casts
) -> None:
    """Write so many tokens: what says that an end was reached lies in data that is not there."""
    from transformers.generation import GenerationMixin

    left = iter([True] * new)
    unfinished = replaced(
        GenerationMixin, "_has_unfinished_sequences", lambda *_, **__: next(left, False)
    )
    endless = replaced(inner_of(model).generation_config, "eos_token_id", None)
    counted = replaced(storages, "answer", _zeros(storages.answer))
    with torch.no_grad(), casts, unfinished, endless, counted:
        model.generate(**given, max_new_tokens=new, num_beams=asked.beams, **_DECODING)


def _zeros(others: Any) -> Callable[[Any, Any, Any], Any]:
    """Answers with zero for numbers that no meta tensor holds: how long the best beam is."""

    def answer(func: Any, args: Any, kwargs: Any) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:  # noqa: SLF001
            return 0
        return others(func, args, kwargs) if others is not None else NotImplemented

    return answer


def _tokens(rows: int, length: int) -> Batch:
    ids = torch.zeros(rows, length, dtype=torch.long, device="meta")
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _second(begin: Callable[[], None]) -> Callable[..., None]:
    """A hook that calls back when a module is called for the second time."""
    calls = 0

    def called(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            begin()

    return called
