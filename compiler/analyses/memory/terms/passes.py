"""The memory of forward and backward passes under any sharding: activations, logits, copies."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tunec.compiler.analyses.fsdp_units import NESTED_ATTENTION
from tunec.compiler.analyses.memory.activations import Activations, Pass, stacks_of
from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.diffusion import denoiser_activations
from tunec.compiler.analyses.memory.layers import gives_fp32
from tunec.compiler.analyses.memory.lora import (
    adapters_working,
    experts_merged,
    experts_merging,
    weights_kept,
)
from tunec.compiler.analyses.memory.loss import ON_HOST, LossBytes, judged_tokens, loss_bytes
from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.sharding import PARAMETERS
from tunec.compiler.analyses.memory.terms.casts import (
    backward_casts,
    evaluation_casts,
    forward_casts,
)
from tunec.compiler.analyses.memory.terms.fsdp_ends import head_of, norm_is_in_unit
from tunec.compiler.analyses.memory.terms.fsdp_units import (
    computed_states,
    retained,
    retains_inputs,
)
from tunec.compiler.analyses.memory.text import (
    is_masked,
    masks_anyway,
    text_activations,
    text_tokens,
    waiting_by_layer,
)
from tunec.compiler.analyses.memory.timeline import At, Sizes, Term, lasting, of_samples
from tunec.compiler.analyses.memory.vision import image_activations, masks_together
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.ir.slots import States
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Part
from tunec.schemas.models.layer_measures import ALONE
from tunec.schemas.terms import STEPS_IN_BACKWARD


def kept_logits(workload: Workload, widths: Arithmetic, ranks: int) -> Sizes:
    """Logits of evaluation batches that wait for the metric.

    transformers 5.23 `trainer.py`, `evaluation_loop`: those of all ranks are gathered on each, and
    `trainer_pt_utils.py`, `EvalLoopContainer.add`, joins what waits and what comes to a new tensor.
    accelerate 1.15 `accelerator.py`, `prepare_model`, makes what autocast gives fp32.
    """
    batches = workload.kept_evaluation_batches
    if not batches:
        return {}
    size = 4 if widths.autocast else widths.compute
    joined = 2 * batches if batches > 1 else batches
    each = size * workload.architecture.vocab * text_tokens(workload) * ranks
    return {"kept evaluation logits": float(each * joined)}


EXPANDED: Final = 2
"""Bytes of an element of a quantised weight while it is multiplied with (bitsandbytes 0.50.2
`functional.py`, `dequantize_4bit`: 16 bit)."""

_TOWER: Final = (-1.0, 0.0)
"""The span of the vision tower's layers, which are differentiated after all others."""


def pass_of(
    workload: Workload, layout: Layout, *, padded: bool, short: bool = False, alone: bool = False
) -> Pass:
    """The settings of one forward and backward pass of a layout.

    `short`: whether a micro batch is shorter than a tile of the loss; `alone`: whether it is one
    sample.
    """
    fsdp, asked, parallel = layout.fsdp, layout.activation_checkpointing, layout.parallel
    on_zero = parallel.engine == "deepspeed" and layout.zero.stage == PARAMETERS
    return Pass(
        states=computed_states(layout.states, workload, fsdp),
        checkpointed=asked.mode == "layer",
        padded=(padded or masks_anyway(workload)) and is_masked(workload),
        sequence_parallel=parallel.sequence,
        gathered=parallel.data if workload.kept_evaluation_batches else 1,
        segment=asked.segment,
        gap=asked.gap,
        offload=asked.offload,
        reentrant=asked.reentrant,
        retains=retains_inputs(workload, asked, fsdp),
        short=short,
        keeps_inputs=on_zero,
        alone=alone and _is_less_alone(workload.architecture),
        together=layout.batch.micro if masks_together(workload) else 1,
        nested=fsdp.checkpointing and workload.architecture.family in NESTED_ATTENTION,
        head=head_of(workload, fsdp),
        casts_norm=norm_is_in_unit(workload, fsdp),
        casts_adapters=layout.states.autocast and not fsdp.version,
    )


def _is_less_alone(model: Architecture) -> bool:
    """Whether a single sample may need less memory than each of several samples."""
    measured = (each for stack in model.stacks for each in stack.measured)
    return model.kind == "diffusion" or any(each.way.endswith(ALONE) for each in measured)


@cached(2048)
def of_pass(workload: Workload, run: Pass) -> tuple[Term, ...]:
    """The terms of the passes of training and evaluation, without weights and gradients."""
    return (
        *_of_layers(workload, run),
        *_of_images(workload, run),
        *_of_loss(workload, run),
        *_of_reference(workload, run),
        *_of_copies(workload, run),
        *_of_evaluation(workload, run),
    )


def sequences_of(workload: Workload) -> int:
    """The number of sequences in one sample."""
    return workload.preference.sequences if workload.preference is not None else 1


def _of_layers(workload: Workload, run: Pass) -> Iterator[Term]:
    """The activations that layers keep until they are differentiated, and their working memory."""
    passed, number = activations(workload, run), sequences_of(workload)
    waiting, norm = _waiting(passed)
    yield from of_samples(embedded(workload, run), At.FORWARD, At.FIRST_GATHERING, number)
    for each, span in waiting_by_layer(workload, passed, waiting):
        yield from of_samples(each, At.LAYERS, At.ALL_REDUCED, number, span=span)
    yield from of_samples(norm, At.LOSS_FORWARD, At.HEAD_STEPPED, number)
    yield from of_samples(_read_by_head(workload, run), At.LOSS_FORWARD, At.LOSS_FORWARD, number)
    if main_part(workload) == "denoiser":
        yield from of_samples(norm, At.LAST_LAYER, At.LAST_LAYER, number)
    yield from of_samples(passed.last_layer, At.LAST_LAYER, At.LAST_LAYER, number)
    at = At.LAST_LAYER_FORWARD
    yield from of_samples(passed.ending, at, at, number)
    if passed.experts is not None:
        yield from of_samples(passed.experts.forward, At.LAST_FORWARD, At.LAST_FORWARD, number)
    if count(workload).quantized:
        weight = {"expanded weight": float(EXPANDED * count(workload).expanded)}
        yield from lasting(weight, At.EXPANSION, At.EXPANSION)
        yield from of_samples(passed.expanding, At.EXPANSION, At.EXPANSION, number)
    if workload.adapter.dora and workload.adapted and run.checkpointed:
        yield from of_samples(passed.one_layer, At.NORMS, At.NORMS, number)
    yield from of_samples(passed.first_segment, At.FIRST_SEGMENT, At.FIRST_SEGMENT, number)
    layers = sum(stack.layers for stack in workload.architecture.stacks)
    retaining = retained(passed.kept, layers) if run.retains else {}
    first = {**passed.first_layer, **retaining}
    yield from of_samples(first, At.FIRST_LAYER, At.FIRST_LAYER, number)
    yield from _of_all_samples(passed, again=run.checkpointed)


def _read_by_head(workload: Workload, run: Pass) -> Sizes:
    """The hidden states that the head has read, where nothing keeps them for its gradient.

    A model that computes its own loss still holds them, as a variable (transformers 5.23
    `models/llama/modeling_llama.py`, `LlamaForCausalLM.forward`: `hidden_states`), beside the cast
    that the head keeps of fp32 ones. A card's measure contains them. Traced.
    """
    model = workload.architecture
    compares = workload.preference is not None and model.kind != "sequence-classifier"
    if model.kind == "diffusion" or workload.loss != "full" or compares:
        return {}
    widths, last = arithmetic(workload, run.states, "text"), stacks_of(model, "text")[-1]
    wide = gives_fp32(last, widths) and not run.casts_norm
    kept = (widths.trained or run.keeps_inputs) and not (widths.casts or wide)
    if kept or last.measured:
        return {}
    tokens = text_tokens(workload) / run.sequence_parallel
    return {"final norm": tokens * (BYTES["fp32"] if wide else widths.stream) * last.hidden}


def _of_all_samples(passed: Activations, *, again: bool) -> Iterator[Term]:
    """Terms that all samples of a batch share, such as DeBERTa's relative positions."""
    name, (waiting, layer) = "activations of all samples", passed.together
    if any(passed.leaf):
        stays, shared, first = passed.leaf
        yield from lasting({name: stays}, At.ALL_REDUCED, At.EMBEDDING)
        yield from lasting({"bias's gradient": stays}, At.LAST_LAYER, At.EMBEDDING)
        yield from lasting({"bias's gradient": shared}, At.LAST_LAYER, At.LAST_LAYER)
        yield from lasting({name: first}, At.FIRST_LAYER, At.FIRST_LAYER)
    if waiting:
        yield Term(name, round(waiting), At.LAYERS, At.ALL_REDUCED, by_layer=True)
    if again and layer:
        yield from lasting({name: layer}, At.LAST_LAYER, At.LAST_LAYER)
    if layer:
        yield from lasting({name: layer}, At.FIRST_LAYER, At.FIRST_LAYER)


def _waiting(passed: Activations) -> tuple[Sizes, Sizes]:
    """The activations that layers keep until they are differentiated, and the final norm's."""
    norm = {name: size for name, size in passed.kept.items() if name == "final norm"}
    return {name: size for name, size in passed.kept.items() if name not in norm}, norm


def _of_images(workload: Workload, run: Pass) -> Iterator[Term]:
    """Terms of the vision tower and the projector, which wait while layers are differentiated."""
    images, number = image_activations(workload, run), sequences_of(workload)
    yield from of_samples(images.forward, At.VISION_FORWARD, At.VISION_FORWARD, number)
    yield from of_samples(images.kept, At.LAYERS, At.ALL_REDUCED, number, span=_TOWER)
    freed = At.VISION_BACKWARD if images.after_embedding else At.EMBEDDING
    yield from of_samples(images.kept, At.ALL_REDUCED, freed, number)
    yield from of_samples(images.backward, At.VISION_BACKWARD, At.VISION_BACKWARD, number)


class Losing(NamedTuple):
    """The memory of a loss, and the number of tokens per sequence that it covers."""

    loss: LossBytes
    tokens: float
    """The tokens of a sequence on this rank."""
    judged: float
    """The number of these tokens that the loss covers."""

    @property
    def forward(self) -> float:
        """Bytes per sequence when the loss is computed."""
        return self.judged * self.loss.forward


def losing(workload: Workload, run: Pass) -> Losing:
    """The memory that the loss of a pass needs."""
    ranks = run.sequence_parallel
    tokens, judged = text_tokens(workload) / ranks, judged_tokens(workload) / ranks
    loss = loss_of(workload, run.states, short=run.short, as_stored=run.head == "loss")
    return Losing(ON_HOST if run.head == "host" else loss, tokens, judged)


def _of_loss(workload: Workload, run: Pass) -> Iterator[Term]:
    """Terms of logits and their derived tensors, and the buffers of a loss computed in pieces."""
    at, number = losing(workload, run), sequences_of(workload)
    for size, buffers, moment in (
        (at.forward, at.loss.fixed, At.LOSS_FORWARD),
        (at.judged * at.loss.backward, at.loss.fixed_backward, At.LOSS_BACKWARD),
    ):
        yield from of_samples({"logits and loss": size}, moment, moment, number)
        yield from lasting({"loss buffers": buffers}, moment, moment)
    # of the ten bytes that a loss takes for each logit four stay, its logarithms
    norm = _waiting(activations(workload, run))[1]
    held = {**norm, "logits and loss": at.forward}
    left = {name: 0.4 * round(size) * number for name, size in held.items()}
    yield from of_samples(left, At.HEAD_DONE, At.ROOT_GATHERING)


def _of_reference(workload: Workload, run: Pass) -> Iterator[Term]:
    """The reference's forward pass after the trained model's own (trl 1.16, `_compute_loss`)."""
    asked = workload.preference
    if asked is None or asked.scored or asked.reference not in ("resident", "base"):
        return
    at, number = losing(workload, run), asked.sequences
    held = at.loss.kept if workload.loss != "full" else at.loss.forward
    layers = activations(workload, run).forward
    logits = {"logits and loss": at.tokens * held}
    first, last = At.REFERENCE_FORWARD, At.REFERENCE_LOSS
    yield from of_samples({**layers, **logits}, first, first, number)
    logits = {"logits and loss": at.tokens * (held + at.loss.forward)}
    yield from of_samples(logits, last, last, number)
    yield from lasting({"loss buffers": at.loss.fixed}, last, last)


def _of_copies(workload: Workload, run: Pass) -> Iterator[Term]:
    """Terms of autocast's 16-bit weight copies, and of weights that adapters compute anew."""
    widths = arithmetic(workload, run.states, main_part(workload))
    checkpointed = run.checkpointed and not run.gap
    counts, head = count(workload), workload.loss == "full"
    merged = _merged(workload, widths, checkpointed=checkpointed)
    forward = forward_casts(counts, widths, run, checkpointed=checkpointed, head=head)
    backward = backward_casts(counts, widths, run, checkpointed=checkpointed, head=head)
    left = left_copies(workload, run)
    yield from lasting({**forward, **merged}, At.FORWARDED, At.REFERENCE_LOSS)
    yield from lasting({**backward, **merged}, At.LOSS_BACKWARD, At.HEAD)
    if workload.optimizer.name in STEPS_IN_BACKWARD:
        yield from lasting(left, At.HEAD_STEPPED, At.HEAD_STEPPED)
    yield from lasting(left, At.LAST_LAYER, At.LAST_EXPERTS)
    if widths.trains_experts and not widths.trained:
        yield from _of_merging(workload, widths, checkpointed=checkpointed)


def _of_merging(workload: Workload, widths: Arithmetic, *, checkpointed: bool) -> Iterator[Term]:
    """Merged weights of the layer that is differentiated, and their gradients."""
    merged, gradient = experts_merging(workload, widths)
    own, arriving = {"merged experts": merged}, {"merged experts' gradient": gradient}
    if checkpointed:
        yield from lasting(own, At.LAST_FORWARD, At.LAST_FORWARD)
        yield from lasting(own, At.LAST_LAYER, At.LAST_EXPERTS)
    yield from lasting(own, At.ALL_REDUCED, At.FIRST_EXPERTS)
    yield from lasting(arriving, At.LAST_INNER, At.LAST_EXPERTS)
    yield from lasting(arriving, At.FIRST_INNER, At.FIRST_EXPERTS)


def left_copies(workload: Workload, run: Pass) -> Sizes:
    """Copies that still exist when the output projection is done."""
    widths = arithmetic(workload, run.states, main_part(workload))
    checkpointed, head = run.checkpointed and not run.gap, workload.loss == "full"
    merged = _merged(workload, widths, checkpointed=checkpointed)
    if run.checkpointed:
        return merged
    counts = count(workload)
    return {**backward_casts(counts, widths, run, checkpointed=checkpointed, head=head), **merged}


def _merged(workload: Workload, widths: Arithmetic, *, checkpointed: bool) -> Sizes:
    """Weights that adapters compute anew, kept from the forward pass to the backward pass."""
    found = dict(experts_merged(workload, widths, checkpointed=checkpointed))
    cast = 0.0 if checkpointed else weights_kept(workload, widths, checkpointed=False)
    return {**found, "casts for norms": cast} if cast else found


def _of_evaluation(workload: Workload, run: Pass) -> Iterator[Term]:
    """Terms of evaluation. Ranks that share a sequence in training each evaluate whole ones.

    accelerate 1.15 `accelerator.py`, `_prepare_deepspeed`: `disable_in_eval`.
    """
    if workload.data.evaluation is not None:
        run = replace(run, sequence_parallel=1) if run.sequence_parallel > 1 else run
    widths = arithmetic(workload, run.states, main_part(workload))
    working = {**activations(workload, run).forward, **adapting(workload, run)}
    highest = max(working, evaluated(workload, run), key=lambda sizes: sum(sizes.values()))
    sizes = {**highest, **kept_logits(workload, widths, run.gathered)}
    number = sequences_of(workload)
    yield from of_samples(sizes, At.EVALUATION, At.EVALUATION, number)
    casts = evaluation_casts(count(workload), widths, run)
    yield from lasting(casts, At.EVALUATION, At.EVALUATION)


def adapting(workload: Workload, run: Pass) -> Sizes:
    """Bytes per sequence that adapters add to a layer's work in a pass that keeps nothing."""
    widths = arithmetic(workload, run.states, main_part(workload))
    tokens = text_tokens(workload) / run.sequence_parallel
    return {"adapters' products": tokens * adapters_working(workload, widths)}


def evaluated(workload: Workload, run: Pass) -> Sizes:
    """Logits and loss of a pass that keeps nothing except the hidden states they are made from.

    The tensor that a cap on the logits keeps for its gradient is not needed.
    """
    model, at = workload.architecture, losing(workload, run)
    widths = arithmetic(workload, run.states, main_part(workload))
    capped = widths.compute * model.vocab if model.logit_softcap and workload.loss == "full" else 0
    made = at.forward - judged_tokens(workload) * capped
    return {"logits and loss": made, "final norm": at.tokens * widths.stream * model.hidden}


def embedded(workload: Workload, run: Pass) -> Sizes:
    """The embedding's output for one sequence, in bytes."""
    widths = arithmetic(workload, run.states, main_part(workload))
    tokens = max(text_tokens(workload), workload.architecture.source) / run.sequence_parallel
    return {"text layer inputs": tokens * widths.stream * workload.architecture.hidden}


def main_part(workload: Workload) -> Part:
    """The part whose arithmetic applies to the whole run."""
    return "denoiser" if workload.architecture.kind == "diffusion" else "text"


def activations(workload: Workload, run: Pass) -> Activations:
    """Activations of the model that is trained: a language model or a denoiser."""
    if workload.architecture.kind == "diffusion":
        return denoiser_activations(workload, run)
    return text_activations(workload, run)


@cached(1024)
def loss_of(
    workload: Workload, states: States, *, short: bool = False, as_stored: bool = False
) -> LossBytes:
    """Bytes per token of the loss of this workload.

    `as_stored`: whether it reads the head as FSDP stores it, in fp32 if autocast trains it.
    """
    counts = count(workload)
    widths = arithmetic(workload, states, main_part(workload))
    trained = counts.head > 0 or counts.tied
    loss = loss_bytes(
        workload,
        widths.compute,
        head_trained=trained,
        autocast=states.autocast,
        casts=widths.casts or (as_stored and trained and states.autocast),
        short=short,
    )
    last = workload.architecture.stacks[-1] if workload.architecture.stacks else None
    if workload.loss != "chunked" or last is None or not gives_fp32(last, widths):
        return loss
    # what the final norm gives, and those of its rows that count, before their cast is read
    wide, gone = 2 * BYTES["fp32"] * last.hidden, (BYTES["fp32"] + widths.compute) * last.hidden
    return replace(loss, forward=loss.forward + wide, backward=loss.backward + wide - gone)
