"""Answers by transformers' own `generate`: the reading of all prompts, and the last token."""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch

from tunec.compiler.analyses.memory.workload import Generation
from tunec.compiler.tracing.live.batches import Batch
from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.subject import Subject

_DECODING: Final = {"do_sample": False, "use_cache": True}
"""Settings as in a model's own generation_config: the Trainer disables the cache only in
`config`."""
Casts = AbstractContextManager[Any]


def read_and_write(
    subject: Subject,
    storages: Storages,
    model: Any,
    asked: Generation,
    recorded: tuple[int, tuple[str, str]],
    casts: Casts,
) -> None:
    """Record the prefill of all prompts, and the last generated token.

    `recorded`: the number of sequences answered at once, without beams, and the names of both
    phases. A separate run records the second phase, with a prompt that is two tokens short of the
    whole: the content of the cache does not depend on which of its tokens were generated.
    """
    rows, (reading, writing) = recorded
    read = asked.tokens - asked.steps
    apart = subject.workload.architecture.kind == "encoder-decoder"
    # accelerate wraps the forward of what it was given, which is PEFT's; `generate` is the base's
    casts = nullcontext() if subject.is_adapted else casts
    storages.recording.begin(reading)
    _written(storages, model, asked, _tokens(rows, read), 1, casts)
    gc.collect()
    storages.recording.begin("")
    hook = inner_of(model).register_forward_pre_hook(
        _second(lambda: storages.recording.begin(writing))
    )
    begun = max((asked.steps if apart else asked.tokens) - 2, 1)
    given = _tokens(rows, read if apart else begun)
    if apart:
        given["decoder_input_ids"] = _tokens(rows, begun)["input_ids"]
    _written(storages, model, asked, given, 2, casts)
    hook.remove()
    storages.recording.begin("")


def inner_of(model: Any) -> Any:
    """The transformers model, without PEFT's wrapper if there is one."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _written(
    storages: Storages, model: Any, asked: Generation, given: Batch, new: int, casts: Casts
) -> None:
    """Generate `new` tokens; whether an end was reached depends on data that meta tensors lack."""
    from transformers.generation import GenerationMixin

    left = iter([True] * new)
    unfinished = replaced(
        GenerationMixin, "_has_unfinished_sequences", lambda *_, **__: next(left, False)
    )
    endless = replaced(inner_of(model).generation_config, "eos_token_id", None)
    counted = replaced(storages, "answer", zeros(storages.answer))
    with torch.no_grad(), casts, unfinished, endless, counted:
        model.generate(**given, max_new_tokens=new, num_beams=asked.beams, **_DECODING)


def zeros(others: Any) -> Callable[[Any, Any, Any], Any]:
    """Answers zero for numbers that no meta tensor holds, such as the length of the best beam."""

    def answer(func: Any, args: Any, kwargs: Any) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:  # noqa: SLF001
            return 0
        return others(func, args, kwargs) if others is not None else NotImplemented

    return answer


def _tokens(rows: int, length: int) -> Batch:
    ids = torch.zeros(rows, length, dtype=torch.long, device="meta")
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _second(begin: Callable[[], None]) -> Callable[..., None]:
    """A hook that calls `begin` when a module is called for the second time."""
    calls = 0

    def called(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            begin()

    return called
