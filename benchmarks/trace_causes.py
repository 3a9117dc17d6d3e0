"""Rows of docs/memory-accuracy.md that show one cause each: an optimizer, a loss, some layers."""

from collections.abc import Iterator
from typing import Any, Final

from trace_models import Model
from trace_row import Combination
from trace_shared import flat_halves

from tunec.schemas.frozen import replace


def recomputed(one: Combination) -> Iterator[Combination]:
    """Recomputation by segments, with gaps, reentrant, and with inputs on the host."""
    for method in ("full", "lora"):
        each = replace(one, method=method, loss="chunked")
        yield replace(each, reentrant=True)
        yield replace(each, segment=4)
        yield replace(each, gap=3)
        yield replace(each, offload=True)


def adapters_in_tiles(one: Combination) -> Iterator[Combination]:
    """Adapters as most are trained today: recomputed layers, and TRL's loss in tiles."""
    one = replace(one, checkpointed=True, loss="chunked", sequence=4096)
    for method, states in (("lora", "autocast"), ("qlora", "kbit"), ("qlora", "bf16")):
        yield replace(one, method=method, states=states, dropout=0.1)
    attention = ("q_proj", "k_proj", "v_proj", "o_proj")
    yield replace(one, method="qlora", targets=attention)
    yield replace(one, method="lora", states="bf16-adapters", targets=attention)
    yield replace(one, method="lora", sequence=512, micro=2)


def wide_norms(one: Combination) -> Iterator[Combination]:
    """Where autocast has what norms give in fp32: shards, and adapters as TRL trains them."""
    sharded = replace(one, states="fsdp", engine="fsdp", world=8, fsdp="full", micro=2)
    yield sharded
    yield replace(sharded, version=1)
    if one.model == "phi-2":  # its only norm gives what attention and feed-forward read
        yield replace(one, method="lora", states="bf16-adapters")
    one = replace(one, loss="chunked", micro=2, sequence=1024, packing=False)
    for checkpointed in (False, True):
        own = replace(one, checkpointed=checkpointed)
        yield replace(own, method="qlora", states="autocast-bf16")
        yield replace(own, method="lora", states="autocast")


def repeated_values(one: Combination) -> Iterator[Combination]:
    """Values out of a fused projection, which a mask or eager attention repeats."""
    yield replace(one, packing=False, micro=2)
    yield replace(one, attention="eager", sequence=512)


def tower_last(one: Combination) -> Iterator[Combination]:
    """A tower that waits while the text's gradients are reduced, or stay where they are made."""
    sharded = replace(one, states="mixed", engine="deepspeed", world=8, micro=4)
    for stage in (1, 2):
        yield replace(sharded, stage=stage, zero={"overlap_comm": True})


def narrow_scores(one: Combination) -> Iterator[Combination]:
    """Scores whose softmax is in the dtype of the product."""
    one = replace(one, attention="eager", sequence=1024)
    yield one
    yield replace(one, checkpointed=True, micro=2, packing=False)
    yield replace(one, method="lora", states="autocast", checkpointed=True)
    yield replace(one, method="qlora", checkpointed=True, attention="sdpa")


def wide_head(one: Combination) -> Iterator[Combination]:
    """A head so wide that its gradient is larger than the loss of few tokens."""
    one = replace(one, checkpointed=True, accumulation=2, sequence=1024)
    yield replace(one, states="fp32")
    yield replace(one, states="autocast")


def few_inputs(one: Combination) -> Iterator[Combination]:
    """What ZeRO-3's own products keep, and what a first layer keeps before its first adapter."""
    feed_forward = ("gate_proj", "up_proj", "down_proj")
    yield replace(one, method="lora", states="bf16-adapters", targets=feed_forward)
    sharded = replace(one, method="lora", states="mixed", engine="deepspeed", world=8, stage=3)
    yield sharded
    yield replace(sharded, targets=feed_forward)
    yield replace(sharded, targets=("q_proj", "v_proj"), dropout=0.05, checkpointed=True)


def by_muon(one: Combination) -> Iterator[Combination]:
    """DeepSpeed's Muon: whole matrices at stages 1 and 2, gathered ones at stage 3."""
    one = replace(one, states="mixed", engine="deepspeed", optimizer="muon", kernel="own")
    one = replace(one, checkpointed=True, sequence=512)
    whole: dict[str, Any] = {"reduce_scatter": False, "reduce_bucket": 16_777_216}
    yield replace(one, zero=whole)
    yield replace(one, world=1, stage=1, zero=whole)
    yield replace(one, world=1, stage=1, zero={**whole, "overlap_comm": True})
    yield replace(one, world=4, stage=1, accumulation=4, zero=whole)
    for world in (8, 64):
        yield replace(one, world=world, stage=2, zero={**whole, "overlap_comm": True})
        yield replace(one, world=world, stage=3, zero=whole)
    yield replace(one, method="lora", world=8, stage=2, zero=whole)
    yield replace(one, world=8, stage=3, zero={**whole, "reduce_bucket": 500_000_000})


def wide_queries(one: Combination) -> Iterator[Combination]:
    """Queries and keys that are multiplied in fp32, and a GELU whose power autocast has so."""
    yield replace(one, method="lora", states="autocast", sequence=1024)
    yield replace(one, states="autocast", checkpointed=True, sequence=1024)


def texts_alone(one: Combination) -> Iterator[Combination]:
    """A tower that is trained but that no picture passes through, under each engine."""
    yield replace(one, engine="ddp", world=8)
    sharded = replace(one, states="mixed", engine="deepspeed", world=8, checkpointed=True)
    for stage in (1, 2, 3):
        yield replace(sharded, stage=stage)
    yield replace(sharded, stage=2, accumulation=2)
    flat = replace(one, states="fsdp", engine="fsdp", fsdp="full", world=8, checkpointed=True)
    yield flat
    yield replace(flat, version=1)


def gathered_again(one: Combination) -> Iterator[Combination]:
    """Experts before shared ones, which stage 3 has whole twice where they are frozen."""
    one = replace(one, states="mixed", engine="deepspeed", world=8, stage=3)
    yield one
    yield replace(one, method="full", targets=(), checkpointed=True)
    for micro in (1, 4):
        yield replace(one, checkpointed=True, micro=micro)
    yield replace(one, checkpointed=True, reentrant=True)


def as_read(one: Combination) -> Iterator[Combination]:
    """What adapters in the products' dtype read, kept by the layer or not; fp32 ones at stage 3."""
    one = replace(one, method="lora", micro=2, packing=False)
    yield replace(one, states="bf16-adapters")
    yield replace(one, states="autocast")
    yield replace(one, states="mixed-fp32-adapters", engine="deepspeed", world=8, stage=3)


def own_gelu(one: Combination) -> Iterator[Combination]:
    """A GELU with a backward pass of its own, in the fp32 that 4-bit products answer in."""
    one = replace(one, method="qlora", states="autocast-bf16", loss="chunked", sequence=1024)
    yield one
    yield replace(one, checkpointed=True)


def autocast_adapters(one: Combination) -> Iterator[Combination]:
    """Adapters that autocast copies, in layers that keep everything."""
    yield replace(one, method="lora", states="autocast", micro=2, sequence=1024, packing=False)


def _by_dropping(one: Combination) -> Iterator[Combination]:
    """FLAN-T5: halves that drop their embeddings and ends, recomputed beside adapters."""
    one = replace(one, micro=4, checkpointed=True)
    yield replace(one, method="lora", states="autocast")
    yield replace(one, method="qlora", states="autocast-bf16")


def _that_hears(one: Combination) -> Iterator[Combination]:
    """Whisper: an encoder with a length of its own, trained in full or by adapters."""
    one = replace(one, micro=8, sequence=448, states="autocast")
    for checkpointed in (False, True):
        yield replace(one, checkpointed=checkpointed)
        yield replace(one, method="lora", checkpointed=checkpointed)
    yield replace(one, method="lora", checkpointed=True, sequence=64)


def _by_relative_positions(one: Combination) -> Iterator[Combination]:
    """DeBERTa: a table of positions that each layer projects, in samples short and long."""
    one = replace(one, micro=8, states="autocast", attention="eager")
    yield one
    yield replace(one, method="lora")
    yield replace(one, method="lora", sequence=128)
    yield replace(one, method="lora", checkpointed=True)


_ADAPTED: Final = {
    "flan-t5-large": _by_dropping,
    "whisper-small": _that_hears,
    "deberta-v3-base": _by_relative_positions,
}


def encoder_decoder(model: Model) -> Iterator[Combination]:
    """Models with an encoder, with or without a decoder."""
    one = Combination(model.name, sequence=512, packing=False)
    if model.name in _ADAPTED:
        yield from _ADAPTED[model.name](one)
        return
    if model.name == "t5-base":
        # with its own dropout, as it is usually trained
        wide = replace(one, micro=4, states="autocast")
        yield from (wide, replace(wide, checkpointed=True), replace(wide, method="lora"))
        yield replace(wide, method="lora", checkpointed=True)
        yield replace(one, micro=4, method="qlora", states="autocast-bf16")
        return
    if model.name in ("nllb-200-distilled-600m", "pegasus-xsum"):
        yield replace(one, micro=2)
        yield replace(one, micro=2, checkpointed=True)
        yield from as_read(one)
        yield replace(one, method="lora", states="autocast", micro=2, checkpointed=True)
        return
    targets = _QUERIES_AND_VALUES.get(model.config["model_type"], ("q", "v"))
    if model.name in ("bart-large", "mt5-base", "mbart-large-50"):
        yield from flat_halves(one, targets)
    if model.name == "mbart-large-50":
        return
    yield one
    yield replace(one, checkpointed=True)
    yield replace(one, method="lora", targets=targets)
    yield replace(one, method="lora", targets=targets, checkpointed=True)
    yield replace(one, micro=4)
    yield replace(one, micro=4, attention="eager")
    yield replace(one, micro=4, method="lora", targets=targets)
    if model.name == "t5-large":
        yield from long_biases(one, targets)
    if model.name in ("umt5-small", "t5-small", "bert-large"):
        yield replace(one, method="lora", states="autocast")


def long_biases(one: Combination, targets: tuple[str, ...]) -> Iterator[Combination]:
    """Relative positions of long texts: a bias per head and sample, which is most of a layer."""
    wide = replace(one, sequence=2048, micro=2, checkpointed=True)
    yield from (wide, replace(wide, states="autocast"))
    yield replace(wide, method="lora", targets=targets)
    yield replace(one, sequence=2048)


def flash_attention(one: Combination) -> Iterator[Combination]:
    """FlashAttention-2, which gets no mask, of samples that are equally long."""
    several = replace(one, attention="flash_attention_2", packing=False, micro=2)
    yield from (several, replace(several, method="lora"))


_QUERIES_AND_VALUES: Final = {
    **dict.fromkeys(("bart", "mbart"), ("q_proj", "v_proj")),
    "bert": ("query", "value"),
}
