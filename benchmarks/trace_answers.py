"""Rows whose evaluation generates, by transformers' own loop."""

from collections.abc import Iterator
from typing import Final

from trace_models import Model
from trace_row import Combination

from tunec.compiler.analyses.memory.workload import Generation
from tunec.schemas.frozen import replace

WRITING: Final = frozenset(
    {"llama-3.2-1b", "t5-large", "mixtral-8x7b", "deepseek-v2-lite", "gemma-2-2b"}
)
"""Models with keys and values for all heads or some, a cross attention, experts, latent attention,
and a window."""


def evaluated(model: Model) -> Iterator[Combination]:
    """Greedy answers and beams; for one model also with adapters, autocast and shards."""
    one = Combination(model.name, sequence=768, micro=8, packing=False, answers=256)
    one = replace(one, checkpointed=True)
    if model.kind == "encoder-decoder":
        one = replace(one, checkpointed=False, micro=1, sequence=512)
    yield one
    yield replace(one, beams=4)
    if model.name != "llama-3.2-1b":
        return
    yield replace(one, states="autocast")
    yield replace(one, method="lora")
    sharded = replace(one, states="mixed", engine="deepspeed", world=8)
    yield replace(sharded, stage=2)
    yield replace(sharded, stage=3)


def answers_of(row: Combination, model: Model) -> Generation | None:
    """What evaluation generates; an encoder reads the whole sequence, which is then the prompt."""
    if not row.answers:
        return None
    apart = row.answers if model.kind == "encoder-decoder" else 0
    tokens = row.sequence + apart
    return Generation(tokens, row.beams, by_sample=True, steps=row.answers, beams=row.beams)
