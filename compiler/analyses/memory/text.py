"""The language model, in bytes per sample of the micro batch; with an encoder, both halves."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.analyses.memory.activations import (
    Activations,
    Pass,
    part_activations,
    stacks_of,
)
from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.attention import masks_kept
from tunec.compiler.analyses.memory.layer_measures import around, beside
from tunec.compiler.analyses.memory.layers import (
    embedding_saved,
    encoder_end_saved,
    ending_dropped,
    final_input_saved,
    gives_fp32,
    masked_head_saved,
    norm_saved,
)
from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.position_biases import (
    crossing_bias,
    position_biases,
    shared_gradients,
)
from tunec.compiler.analyses.memory.timeline import Sizes, total
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Stack

_EVERY: Final = (0.0, 1.0)
"""The span of all layers."""


def text_tokens(workload: Workload) -> int:
    """Tokens of one sample in the language model: those of its text and of its images."""
    return workload.data.sequence + workload.data.image_tokens


@cached(2048)
def text_activations(workload: Workload, run: Pass) -> Activations:
    """Activations of the language model up to its final norm, in bytes per sample."""
    keys = text_tokens(workload)
    tokens = keys / run.sequence_parallel
    widths = arithmetic(workload, run.states, "text")
    part = _layers(workload, run, widths, tokens, keys)
    last = stacks_of(workload.architecture, "text")[-1]
    measured = around(workload.architecture, widths, keys, alone=run.alone)
    before = beside(workload.architecture, widths, alone=run.alone)
    norm = tokens * _ending(workload.architecture, run, widths, measured) - before
    how = {"checkpointed": run.checkpointed, "padded": run.padded}
    biases = tokens * position_biases(last, widths, keys, **how)
    windowed = next(
        (s for s in stacks_of(workload.architecture, "text") if s.windowed_layers), last
    )
    mask = tokens * masks_kept(windowed, widths, tokens, padded=run.padded)
    # a boolean mask is read again only where layers are recomputed
    waiting = {"attention masks": mask if run.checkpointed or widths.shares_mask else 0.0}
    asks = run.checkpointed and workload.adapter.kind == "lora"
    given, seen = workload.architecture, keys > workload.data.sequence
    if measured is None:
        begun = embedding_saved(given, widths, required=asks, pictured=seen)
        waiting["text embedding"] = tokens * begun
    elif asks and seen:
        # a measure has no pictures, which take the place of tokens in a copy of their embedding
        waiting["text embedding"] = tokens * widths.held * given.hidden
    ended = _source_waiting(workload, run, widths, before) if before else {}
    waiting |= ended
    if measured is None and widths.crosses:
        ended = {"encoder's norm": tokens * _encoder_end(workload, run, widths)}
    return replace(
        part,
        kept={**part.kept, "final norm": norm, **waiting, **ended},
        first_layer={**part.first_layer, **waiting},
        encoder={**part.encoder, **ended},
        forward={**part.forward, "masks of its own": mask},
        together=(part.together[0] + biases, part.together[1]),
        leaf=_leaf(last, widths, run, tokens, keys),
    )


def _leaf(
    last: Stack, widths: Arithmetic, run: Pass, tokens: float, keys: float
) -> tuple[float, float, float]:
    """Bytes of biases that all samples share, and of their gradients (`Activations.leaf`)."""
    if widths.own_biases or not run.checkpointed or not widths.biased:
        return 0.0, 0.0, 0.0
    stays, shared = crossing_bias(last, widths, keys), shared_gradients(last, widths, keys)
    own = widths.held * last.heads * keys
    return tokens * stays, tokens * shared, tokens * own * (1 + 2 * widths.trained)


def _ending(model: Architecture, run: Pass, widths: Arithmetic, measured: float | None) -> float:
    """Bytes per token from the last layer's result to what the head reads.

    `measured`: what the model keeps outside of layers and head, if a card says so. A head under
    autocast then keeps a cast of its own.
    """
    last = stacks_of(model, "text")[-1]
    if measured is not None:
        cast = widths.casts or gives_fp32(last, widths)
        return measured + (widths.trained and cast) * final_input_saved(last, widths)
    read = widths.trained or run.keeps_inputs
    ending = norm_saved(last, widths) + read * final_input_saved(last, widths)
    ending += ending_dropped(model, last, widths)
    return ending + masked_head_saved(model, last, widths, read=read)


def _encoder_end(workload: Workload, run: Pass, widths: Arithmetic) -> float:
    """Bytes per token that are kept between an encoder and the decoder that reads it."""
    adapted = bool(workload.adapted) and not workload.adapter.dropout
    encoder = stacks_of(workload.architecture, "text")[0]
    how = {"adapted": adapted, "checkpointed": run.checkpointed}
    return encoder_end_saved(workload.architecture, encoder, widths, **how)


def _source_waiting(workload: Workload, run: Pass, widths: Arithmetic, before: float) -> Sizes:
    """Bytes per sample that an encoder without text keeps, besides its layers.

    `before`: bytes that are kept before and after its layers. Layers that are recomputed read its
    result unchanged; others keep casts of it.
    """
    model = workload.architecture
    again = run.checkpointed and widths.autocast
    result = model.source * model.hidden * BYTES["fp32"] if again else 0
    return {"encoder's ends": before + result}


def _layers(
    workload: Workload, run: Pass, widths: Arithmetic, tokens: float, keys: float
) -> Activations:
    """Activations of the layers; an encoder without text has its own length."""
    source = workload.architecture.source
    if not source:
        return part_activations(workload, run, "text", widths, tokens, keys)
    encoder = part_activations(workload, run, "text", widths, source, keys, "encoder")
    decoder = part_activations(workload, run, "text", widths, tokens, keys, "decoder")
    return _joined(encoder, decoder)


def _joined(encoder: Activations, decoder: Activations) -> Activations:
    """Both halves: the encoder is differentiated after the decoder has freed everything."""
    return replace(
        decoder,
        kept=_sum(encoder.kept, decoder.kept),
        first_layer=encoder.first_layer,
        one_layer=max(encoder.one_layer, decoder.one_layer, key=total),
        forward=max(encoder.forward, decoder.forward, key=total),
        encoder={"text activations of the encoder": float(total(encoder.kept))},
        ahead=encoder,
        first_segment=encoder.first_segment,
        moved=max(encoder.moved, decoder.moved),
    )


def _sum(one: Sizes, other: Sizes) -> Sizes:
    return {name: one.get(name, 0) + other.get(name, 0) for name in (*one, *other)}


def waiting_by_layer(
    workload: Workload, passed: Activations, waiting: Sizes
) -> Iterator[tuple[Sizes, tuple[float, float] | None]]:
    """Waiting tensors, with the span of layers that keep them; None: no layer frees them."""
    if passed.ahead is None:
        yield waiting, _EVERY
        return
    ends = {name: waiting[name] for name in (*passed.encoder,) if name in waiting}
    ahead, share = passed.ahead.kept, share_ahead(workload)
    decoder = {k: size - ahead.get(k, 0) for k, size in waiting.items() if k not in ends}
    yield from ((ends, None), (ahead, (0.0, share)), (decoder, (share, 1.0)))


def share_ahead(workload: Workload) -> float:
    """The share of the layers that are in an encoder without text."""
    stacks = workload.architecture.stacks
    ahead = sum(stack.layers for stack in stacks if stack.positions)
    return ahead / sum(stack.layers for stack in stacks)


_PICTURES_WHOLE: Final = frozenset({"gemma3", "paligemma"})
"""Families whose text attends to a picture's tokens in both directions (transformers 5.23
`models/gemma3/modeling_gemma3.py`, `get_block_sequence_ids_for_mask`;
`models/paligemma/modeling_paligemma.py`, `create_causal_mask_mapping`)."""


_ALWAYS_MASKED: Final = frozenset({"falcon"})
"""Families that make a mask of tokens whatever they are given (transformers 5.23
`models/falcon/modeling_falcon.py`, `FalconModel.forward`: `allow_is_causal_skip=False`)."""


def masks_anyway(workload: Workload) -> bool:
    """Whether attention has a mask without padding: its family's, or one for pictures."""
    family = workload.architecture.family
    pictured = family in _PICTURES_WHOLE and bool(workload.data.images)
    return pictured or family in _ALWAYS_MASKED


def is_masked(workload: Workload) -> bool:
    """Whether attention masks padding: an audio model's decoder only gets labels.

    transformers 5.23 `models/whisper/modeling_whisper.py`, `WhisperForConditionalGeneration`: the
    decoder's input is made of them, without a mask.
    """
    return workload.attention.implementation == "sdpa" and not workload.architecture.source
