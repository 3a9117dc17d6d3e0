"""The phases of a training step, from the layout's figures."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from tunec.compiler.analyses.memory.activations import (
    Activations,
    Pass,
    text_activations,
    text_tokens,
)
from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.casts import backward_casts, forward_casts
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.diffusion import denoiser_activations
from tunec.compiler.analyses.memory.generation import generating
from tunec.compiler.analyses.memory.gradients import (
    at_decoder_embedding,
    at_embedding,
    at_experts,
    at_first_layer,
    at_last_layer,
    at_last_reduction,
    at_later_reduction,
    at_loss,
    at_reduction,
    at_vision,
    first_reduction,
    kept_gradients,
)
from tunec.compiler.analyses.memory.lora import norms_working, weights_kept
from tunec.compiler.analyses.memory.loss import loss_bytes
from tunec.compiler.analyses.memory.phase import (
    NOTHING,
    Group,
    Phase,
    Terms,
    evaluation_phase,
    group,
    phase,
    scaled,
    times,
)
from tunec.compiler.analyses.memory.projection import LossBytes
from tunec.compiler.analyses.memory.sharding import (
    Sharding,
    resident,
    sharding,
)
from tunec.compiler.analyses.memory.step import optimizer_step
from tunec.compiler.analyses.memory.vision import image_activations
from tunec.compiler.analyses.memory.weights import gathered, gathered_layer, weights
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import ActivationCheckpointing, Parallel, States, Zero
from tunec.schemas.models.architecture import Part


class Samples(NamedTuple):
    """What one sample adds, and what autocast copies, at each moment of a step."""

    at_images: Group
    at_loss: Group
    at_loss_backward: Group
    at_last_layer: Group
    until_backward: Group
    """What layers keep until they are differentiated."""
    in_layer: Group
    """What differentiating one layer takes."""
    at_first_layer: Group
    at_experts: Group
    at_norms: Group
    """While DoRA makes the norms of a layer's weights."""
    of_encoder: Group
    after_text: Group
    at_images_backward: Group
    in_evaluation: Group
    at_reference: Group
    """While a reference model is asked, the trained one's graph alive."""
    forward_copies: Group
    """16-bit copies of weights; these and the buffers do not depend on the samples."""
    backward_copies: Group
    loss_buffers: Group
    loss_buffers_backward: Group


class Fixed(NamedTuple):
    """What a layout holds on the device at each moment, whatever the micro batch."""

    always: Group
    """Weights and training state that never leave."""
    turning: Group
    """Parameters that ZeRO stage 3 has made whole where forward turns to backward."""
    ending: Group
    """The same near the end of the backward pass."""
    kept: Group
    """Gradients of earlier micro batches."""
    at_loss: Group
    at_last_layer: Group
    at_first_layer: Group
    at_experts: Group
    at_embedding: Group
    at_decoder_embedding: Group
    at_vision: Group
    """When the text's layers are done and the tower's are to come."""
    at_reduction: Group
    at_later_reduction: Group
    at_last_reduction: Group
    first_reduction: float
    """The share of the backward pass that lies before it."""
    in_step: Group
    norms: Group
    """What DoRA makes its norms in, and the weights that it keeps a cast of."""


@lru_cache(maxsize=8192)
def phases(
    workload: Workload,
    parallel: Parallel,
    states: States,
    zero: Zero,
    checkpointing: ActivationCheckpointing,
    *,
    accumulates: bool,
    padded: bool,
) -> tuple[Phase, ...]:
    """All phases of a training step and of evaluation."""
    run = Pass(
        states=states,
        checkpointed=checkpointing.mode == "layer",
        padded=padded and workload.attention.implementation == "sdpa",
        sequence_parallel=parallel.sequence,
        tensor_parallel=parallel.tensor,
        gathered=parallel.data if workload.kept_evaluation_batches else 1,
    )
    plan = sharding(workload, parallel, states, zero, accumulates=accumulates)
    samples = samples_of(workload, run)
    fixed = fixed_of(workload, plan, checkpointed=run.checkpointed)
    running = (fixed.always, fixed.turning)
    ending = (fixed.always, fixed.ending)
    found = [
        phase(
            "loss forward",
            (*running, samples.forward_copies, fixed.kept, samples.loss_buffers),
            (samples.at_loss,),
        ),
        phase(
            "loss backward",
            (*running, samples.backward_copies, fixed.at_loss, samples.loss_buffers_backward),
            (samples.at_loss_backward,),
        ),
        phase(
            "last layer backward",
            (*running, samples.backward_copies, fixed.at_last_layer),
            (samples.at_last_layer,),
        ),
        phase("first layer backward", (*ending, fixed.at_first_layer), (samples.at_first_layer,)),
        phase("embedding backward", (*ending, fixed.at_embedding), (samples.after_text,)),
        _first_reduction(fixed, samples),
        phase("optimizer step", (fixed.always, fixed.in_step)),
        evaluation_phase("evaluation", running, (samples.in_evaluation,)),
    ]
    return (*found, *_further(workload, plan, samples, fixed))


def _first_reduction(fixed: Fixed, samples: Samples) -> Phase:
    """The first reduction of gradients, when a share of all layers is differentiated."""
    left = 1 - fixed.first_reduction
    if left <= 0:
        return phase("gradient reduction", (fixed.always, fixed.ending, fixed.at_reduction))
    alive = scaled(samples.until_backward, left), samples.in_layer
    return phase("gradient reduction", (fixed.always, fixed.turning, fixed.at_reduction), alive)


def _further(workload: Workload, plan: Sharding, samples: Samples, fixed: Fixed) -> Iterator[Phase]:
    """Phases that only some workloads have."""
    running, ending = (fixed.always, fixed.turning), (fixed.always, fixed.ending)
    if fixed.at_later_reduction.total:
        late = (*ending, fixed.at_later_reduction)
        yield phase("later gradient reduction", late, (samples.at_first_layer,))
    if fixed.at_last_reduction.total:
        yield phase("last gradient reduction", (*ending, fixed.at_last_reduction))
    if samples.at_reference.total:
        held = (*running, samples.forward_copies, fixed.kept, samples.loss_buffers)
        yield phase("reference forward", held, (samples.at_reference,))
    if workload.generation is not None:
        cached = group(generating(workload, plan, workload.generation))
        yield phase("generation", (fixed.always, cached))
    if fixed.norms.total:
        at_norms = (*running, fixed.at_first_layer, fixed.norms)
        yield phase("adapter norms", at_norms, (samples.at_norms,))
    if plan.counts.experts:
        yield phase("experts backward", (*ending, fixed.at_experts), (samples.at_experts,))
    if samples.of_encoder.total and fixed.at_decoder_embedding.total:
        shared = (*ending, fixed.at_decoder_embedding)
        yield phase("decoder embedding backward", shared, (samples.of_encoder,))
    if samples.at_images.total:
        yield phase("vision forward", (*running, fixed.kept), (samples.at_images,))
    if samples.at_images_backward.total:
        yield phase("vision backward", (*ending, fixed.at_vision), (samples.at_images_backward,))


def fixed_of(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Fixed:
    """What a layout holds at each moment, whatever the micro batch."""
    layers = sum(stack.layers for stack in workload.architecture.stacks)
    dora = workload.adapter.dora and bool(workload.adapted)
    return Fixed(
        always=group(weights(workload, plan), resident(workload, plan)),
        turning=group(gathered(plan, layers, checkpointed=checkpointed)),
        ending=group(gathered_layer(plan, layers)),
        kept=group(kept_gradients(plan)),
        at_loss=group(at_loss(plan)),
        at_last_layer=group(at_last_layer(plan)),
        at_first_layer=group(at_first_layer(plan)),
        at_experts=group(at_experts(plan)) if plan.counts.experts else NOTHING,
        at_embedding=group(at_embedding(plan)),
        at_decoder_embedding=group(at_decoder_embedding(plan)) if plan.counts.tied else NOTHING,
        at_vision=group(at_vision(plan)),
        at_reduction=group(at_reduction(plan)),
        at_later_reduction=group(at_later_reduction(plan)),
        at_last_reduction=group(at_last_reduction(plan)),
        first_reduction=first_reduction(plan),
        in_step=group(optimizer_step(workload, plan)),
        norms=group(_norms(workload, plan.states, checkpointed=checkpointed)) if dora else NOTHING,
    )


def _norms(workload: Workload, states: States, *, checkpointed: bool) -> Terms:
    widths = arithmetic(workload, states, main_part(workload))
    kept = weights_kept(workload, widths, checkpointed=checkpointed)
    return {"norms of weights": norms_working(workload, widths), "casts for norms": kept}


@lru_cache(maxsize=2048)
def samples_of(workload: Workload, run: Pass) -> Samples:
    """What one sample of a workload adds at each moment; remembered for all layouts that run so."""
    passed, images = activations(workload, run), image_activations(workload, run)
    loss, counts = loss_of(workload, run.states), count(workload)
    widths = arithmetic(workload, run.states, main_part(workload))
    tokens = text_tokens(workload) / run.sequence_parallel
    kept = {**images.kept, **passed.kept}
    copies = {"checkpointed": run.checkpointed}
    recomputed = passed.one_layer if run.checkpointed else {}
    found = Samples(
        at_images=group(images.forward),
        at_loss=group(kept, {"logits and loss": tokens * loss.forward}),
        at_loss_backward=group(kept, {"logits and loss": tokens * loss.backward}),
        at_last_layer=group(kept, passed.last_layer, {"logits and loss": tokens * loss.kept}),
        until_backward=group({n: size for n, size in kept.items() if n != "final norm"}),
        in_layer=group(passed.last_layer),
        at_first_layer=group(images.kept, passed.first_layer),
        at_experts=group(images.kept, passed.one_layer),
        at_norms=group(kept, recomputed) if workload.adapter.dora else NOTHING,
        of_encoder=group(passed.encoder),
        after_text=NOTHING if images.after_embedding else group(images.kept),
        at_images_backward=group(images.kept, images.backward) if images.backward else NOTHING,
        in_evaluation=group(
            passed.forward,
            {"logits and loss": tokens * loss.forward},
            kept_logits(workload, widths, run.gathered),
        ),
        at_reference=reference_forward(workload, passed, kept, loss, tokens),
        forward_copies=group(forward_casts(counts, widths, **copies)),
        backward_copies=group(backward_casts(counts, widths, **copies)),
        loss_buffers=group({"loss buffers": loss.fixed}) if loss.fixed else NOTHING,
        loss_buffers_backward=group({"loss buffers": loss.fixed_backward})
        if loss.fixed_backward
        else NOTHING,
    )
    sequences = workload.preference.sequences if workload.preference is not None else 1
    return found if sequences == 1 else of_sequences(found, sequences)


def of_sequences(samples: Samples, number: int) -> Samples:
    """What a sample of several sequences adds; copies and buffers are the same for all."""
    shared = ("forward_copies", "backward_copies", "loss_buffers", "loss_buffers_backward")
    names = [name for name in Samples._fields if name not in shared]
    return samples._replace(**{name: times(getattr(samples, name), number) for name in names})


def kept_logits(workload: Workload, widths: Arithmetic, ranks: int) -> Terms:
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


def reference_forward(
    workload: Workload, passed: Activations, kept: Terms, loss: LossBytes, tokens: float
) -> Group:
    """The reference's forward pass after the trained model's own (trl 1.16, `_compute_loss`)."""
    asked = workload.preference
    if asked is None or asked.reference not in ("resident", "base"):
        return NOTHING
    held = loss.kept if workload.loss != "full" else loss.forward
    return group(kept, passed.forward, {"logits and loss": tokens * (held + loss.forward)})


def main_part(workload: Workload) -> Part:
    """The part whose widths are those of the whole run."""
    return "denoiser" if workload.architecture.kind == "diffusion" else "text"


def activations(workload: Workload, run: Pass) -> Activations:
    """Activations of the model that is trained: a language model or a denoiser."""
    if workload.architecture.kind == "diffusion":
        return denoiser_activations(workload, run)
    return text_activations(workload, run)


@lru_cache(maxsize=1024)
def loss_of(workload: Workload, states: States) -> LossBytes:
    """What the loss of this workload holds, in bytes a token."""
    counts = count(workload)
    widths = arithmetic(workload, states, main_part(workload))
    trained = counts.head > 0 or counts.tied
    return loss_bytes(workload, widths.compute, head_trained=trained, autocast=states.autocast)
