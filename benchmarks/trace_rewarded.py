"""Rows of GRPO: its step, its answers, their log-probabilities, weights handed to vLLM."""

from collections.abc import Iterator
from typing import Any, Final

from trace_models import Model
from trace_row import Combination

from tunec.compiler.analyses.memory.workload import Generation, Preference
from tunec.schemas.frozen import replace

REWARDED: Final = frozenset({"llama-3.2-1b", "qwen2.5-7b", "gemma-2-2b", "mixtral-8x7b"})
"""Models with a tied head and one of its own, a cap on scores and logits, and experts."""
_IN_FULL: Final = "gemma-2-2b"
"""Trained in full alone: with adapters, eager attention and a loss in tiles its last layer's
backward pass is accounted for 1.3 % too high, with GRPO or without."""
_ATTENTION: Final = ("q_proj", "k_proj", "v_proj", "o_proj")


def rewarded(model: Model) -> Iterator[Combination]:
    """Answers by the model and by vLLM, with and without a reference; of one model on shards."""
    one = Combination(model.name, sequence=1024, micro=4, packing=False, loss="chunked")
    one = replace(one, checkpointed=True, accumulation=2, answers=512, rewarded="transformers")
    yield one
    if model.name == _IN_FULL:
        return
    adapters = replace(one, method="lora", reference="base")
    adapters = replace(adapters, targets=_ATTENTION if model.kind == "moe" else ())
    yield adapters
    yield replace(adapters, rewarded="vllm")
    if model.name == "llama-3.2-1b":
        yield from _alone(one, adapters)
        yield from _on_zero(one, adapters)
        yield from _on_fsdp(one, adapters)


def _alone(one: Combination, adapters: Combination) -> Iterator[Combination]:
    yield replace(one, reference="resident")
    yield replace(one, states="autocast", reference="resident")
    yield replace(adapters, states="autocast")
    for writer in ("transformers", "vllm"):
        yield replace(adapters, method="qlora", states="kbit", rewarded=writer)
    yield replace(adapters, engine="ddp", world=8, rewarded="vllm")


def _on_zero(one: Combination, adapters: Combination) -> Iterator[Combination]:
    sharded: dict[str, Any] = {"states": "mixed", "engine": "deepspeed", "world": 8}
    yield replace(one, stage=2, **sharded)
    for each in (one, adapters):
        yield replace(each, stage=3, **sharded)
        yield replace(each, stage=3, rewarded="vllm", **sharded)
    yield replace(adapters, stage=2, rewarded="vllm", **sharded)


def _on_fsdp(one: Combination, adapters: Combination) -> Iterator[Combination]:
    sharded: dict[str, Any] = {"states": "fsdp", "engine": "fsdp", "world": 8, "fsdp": "full"}
    yield replace(one, **sharded)
    yield replace(one, rewarded="vllm", **sharded)
    yield replace(adapters, rewarded="vllm", **sharded)
    yield replace(one, version=1, **sharded)
    yield replace(one, version=1, rewarded="vllm", **sharded)


def preference_of(row: Combination) -> Preference | None:
    """The preference method: over pairs of given answers, or a group of generated answers."""
    if row.rewarded:
        return Preference(1, row.reference or "none", row.answers, row.rewarded == "vllm")  # type: ignore[arg-type]
    return Preference(2, row.reference) if row.reference else None  # type: ignore[arg-type]


def generation_of(row: Combination) -> Generation | None:
    """The answers that the model itself generates for GRPO; vLLM has its own cache."""
    if not row.rewarded:
        return None
    own = row.rewarded == "transformers"
    return Generation(row.sequence, int(own), gathers=own, by_sample=True, steps=row.answers)
