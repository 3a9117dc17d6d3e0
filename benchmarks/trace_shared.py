"""Combinations of docs/memory-accuracy.md in which ranks share states, layers or sequences."""

from collections.abc import Iterator
from typing import Final

from trace_row import Combination

from tunec.schemas.frozen import replace

FULLY_SHARDED: Final = frozenset(
    {"llama-3.1-8b", "llama-3.2-1b", "qwen2.5-0.5b", "qwen2.5-7b", "qwen3-8b", "gemma-2-2b"}
    | {"tinyllama-1.1b", "mistral-7b-v0.3", "glm-4-9b-0414", "olmo2-7b", "phi-3-mini"}
)


def fully_sharded(one: Combination) -> Iterator[Combination]:
    sharded = replace(one, states="fsdp", engine="fsdp", world=8, fsdp="full")
    yield replace(sharded, checkpointed=True)
    yield replace(sharded, method="lora")
    if one.model in ("llama-3.1-8b", "llama-3.2-1b", "qwen2.5-0.5b"):
        yield sharded
        yield replace(sharded, fsdp="grad_op")
        yield replace(sharded, fsdp="grad_op", method="lora", sequence=64)
        yield replace(sharded, checkpointed=True, accumulation=2)
        yield replace(sharded, checkpointed=True, world=64, sequence=512)
        yield replace(sharded, method="lora", checkpointed=True, micro=4, sequence=1024)
    if one.model in ("qwen2.5-0.5b", "tinyllama-1.1b", "phi-3-mini"):
        few = replace(sharded, checkpointed=True, sequence=256)
        yield few
        yield from (replace(few, accumulation=3, version=version) for version in (1, 2))
        yield replace(few, accumulation=3, moved=True)
        yield replace(few, method="lora", version=1, sequence=512)
        yield replace(sharded, method="lora", loss="chunked", version=1)
    if one.model in ("qwen2.5-0.5b", "qwen2.5-7b", "llama-3.1-8b"):
        short = 2048 if one.model == "qwen2.5-0.5b" else 256
        yield from _replicated_and_moved(replace(sharded, checkpointed=True, sequence=short))
        yield from heads_in_tiles(replace(sharded, checkpointed=True))


def heads_in_tiles(sharded: Combination) -> Iterator[Combination]:
    """TRL's loss, which gathers a head that FSDP's hooks miss: with adapters."""
    tiled = replace(sharded, loss="chunked")
    yield tiled
    for method in ("lora", "qlora"):
        yield replace(tiled, method=method)
    one = replace(tiled, method="lora")
    yield replace(one, moved=True)
    yield replace(one, checkpointed=False)
    yield replace(one, fsdp="grad_op", sequence=256, micro=4, packing=False)


def _replicated_and_moved(sharded: Combination) -> Iterator[Combination]:
    """Shards in each of two nodes, shards on the host, and shards of a packed base."""
    for method in ("full", "lora"):
        each = replace(sharded, method=method)
        yield replace(each, fsdp="hybrid", world=16, nodes=2)
        yield replace(each, moved=True)
    yield replace(sharded, moved=True, accumulation=2)
    yield replace(sharded, method="qlora")
    yield replace(sharded, method="qlora", checkpointed=False, sequence=512)
    yield replace(sharded, method="qlora", moved=True)


def flat(one: Combination) -> Iterator[Combination]:
    """FSDP 1: each kind of sharding, of precision and of prefetching."""
    sharded = replace(one, states="fsdp", engine="fsdp", world=8, fsdp="full", version=1)
    recomputed = replace(sharded, checkpointed=True)
    yield recomputed
    yield replace(sharded, method="lora")
    if one.model not in ("llama-3.2-1b", "qwen2.5-7b", "mistral-7b-v0.3"):
        return
    yield replace(recomputed, sequence=4096, micro=2)
    yield replace(recomputed, method="lora", micro=4, sequence=1024)
    yield replace(recomputed, method="qlora")
    short = replace(recomputed, sequence=512)
    yield replace(short, states="bf16")
    yield replace(short, accumulation=2)
    yield replace(short, fsdp="grad_op")
    yield replace(short, fsdp="grad_op", world=64, accumulation=2)
    yield replace(short, fsdp="hybrid", world=16, nodes=2)
    yield replace(short, fsdp="none")
    if one.model != "llama-3.2-1b":  # torch refuses a frozen weight that is used twice
        yield replace(short, fsdp="none", method="lora")
    yield replace(short, prefetch="post")
    yield replace(short, prefetch="none")
    away = replace(short, moved=True)
    yield away
    yield replace(away, world=2, fsdp="grad_op")
    yield replace(away, accumulation=2)
    for method in ("lora", "qlora"):
        yield replace(away, method=method)


def flat_halves(one: Combination, targets: tuple[str, ...]) -> Iterator[Combination]:
    """FSDP 1 of an encoder-decoder model; version 2 does not support models that tie both."""
    whole = replace(one, states="fsdp", engine="fsdp", world=8, fsdp="full", version=1, micro=4)
    yield whole
    yield replace(whole, fsdp="grad_op")
    yield replace(whole, checkpointed=True)
    yield replace(whole, method="lora", targets=targets)
    yield replace(whole, method="lora", targets=targets, checkpointed=True)


def in_one_bucket(one: Combination) -> Iterator[Combination]:
    """Models whose gradients all fit in the reduce bucket, on one rank and on many."""
    each = replace(one, states="mixed", engine="deepspeed", checkpointed=True)
    yield replace(each, world=1, stage=2)
    yield replace(each, world=1, stage=1, zero={"overlap_comm": True})
    yield replace(each, world=64, stage=2, zero={"overlap_comm": True})
    yield replace(each, world=64, stage=2, accumulation=2)
    wide = replace(each, states="mixed-fp32-gradients")
    yield replace(wide, world=1, stage=2)
    yield replace(wide, world=8, stage=2)
    yield replace(wide, world=8, stage=3)


SHARED: Final = frozenset(
    {"llama-3.1-8b", "llama-3.2-1b", "mistral-7b-v0.3", "qwen2.5-7b", "qwen3-8b", "qwen3-0.6b"}
    | {"granite-3-2b"}
)


_SQUARES: Final = {"mistral-7b-v0.3": 4096**2, "qwen2.5-7b": 3584**2}
"""Transformers' own reduce bucket, the square of the hidden width, which most matrices exceed."""


def shared(one: Combination) -> Iterator[Combination]:
    """Layers split over some ranks (AutoTP), and sequences split over some (Ulysses)."""
    each = replace(one, states="mixed", engine="deepspeed", world=8, checkpointed=True)
    if one.model in _SQUARES:
        square = {"overlap_comm": True, "reduce_bucket": _SQUARES[one.model]}
        yield replace(each, stage=1, sequence=512, zero=square)
    yield replace(each, tensor=2, stage=1)
    yield replace(each, tensor=4, stage=2, micro=2)
    if one.model != "qwen2.5-7b":
        yield replace(each, ulysses=4, stage=2, sequence=8192)
        yield replace(each, ulysses=8, stage=3, sequence=16384)
    if one.model in ("llama-3.2-1b", "qwen3-8b"):
        yield replace(each, tensor=2, stage=1, checkpointed=False)
        yield replace(each, ulysses=2, stage=1, checkpointed=False)
        yield replace(each, ulysses=4, stage=2, accumulation=2)
        yield replace(each, ulysses=4, stage=2, method="lora", sequence=8192)
