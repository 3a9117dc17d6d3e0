"""The phases of a training step, from the layout's figures."""

from functools import lru_cache
from typing import NamedTuple

from tunec.compiler.analyses.memory.activations import (
    Activations,
    Pass,
    text_activations,
    text_tokens,
)
from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.casts import backward_casts, forward_casts
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.diffusion import denoiser_activations
from tunec.compiler.analyses.memory.gradients import (
    at_embedding,
    at_experts,
    at_first_layer,
    at_last_layer,
    at_loss,
)
from tunec.compiler.analyses.memory.loss import LossBytes, loss_bytes
from tunec.compiler.analyses.memory.phase import (
    NOTHING,
    Group,
    Phase,
    evaluation_phase,
    group,
    phase,
)
from tunec.compiler.analyses.memory.sharding import (
    Sharding,
    kept_gradients,
    optimizer_step,
    resident,
    sharding,
)
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
    at_first_layer: Group
    at_experts: Group
    after_text: Group
    at_images_backward: Group
    in_evaluation: Group
    forward_copies: Group
    """16-bit copies of weights; these and the buffers do not depend on the samples."""
    backward_copies: Group
    loss_buffers: Group


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
    in_step: Group


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
            (*running, samples.backward_copies, fixed.at_loss, samples.loss_buffers),
            (samples.at_loss_backward,),
        ),
        phase(
            "last layer backward",
            (*running, samples.backward_copies, fixed.at_last_layer),
            (samples.at_last_layer,),
        ),
        phase("first layer backward", (*ending, fixed.at_first_layer), (samples.at_first_layer,)),
        phase("embedding backward", (*ending, fixed.at_embedding), (samples.after_text,)),
        phase("optimizer step", (fixed.always, fixed.in_step)),
        evaluation_phase("evaluation", running, (samples.in_evaluation,)),
    ]
    if plan.counts.experts:
        at_own = (*ending, fixed.at_experts)
        found.append(phase("experts backward", at_own, (samples.at_experts,)))
    if samples.at_images.total:
        found.append(phase("vision forward", (*running, fixed.kept), (samples.at_images,)))
    if samples.at_images_backward.total:
        at_end = (*ending, fixed.at_embedding)
        found.append(phase("vision backward", at_end, (samples.at_images_backward,)))
    return tuple(found)


def fixed_of(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Fixed:
    """What a layout holds at each moment, whatever the micro batch."""
    layers = sum(stack.layers for stack in workload.architecture.stacks)
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
        in_step=group(optimizer_step(workload, plan)),
    )


@lru_cache(maxsize=2048)
def samples_of(workload: Workload, run: Pass) -> Samples:
    """What one sample of a workload adds at each moment; remembered for all layouts that run so."""
    passed, images = activations(workload, run), image_activations(workload, run)
    loss, counts = loss_of(workload, run.states), count(workload)
    widths = arithmetic(workload, run.states, main_part(workload))
    tokens = text_tokens(workload) / run.sequence_parallel
    logits = widths.compute * workload.architecture.vocab * workload.kept_evaluation_batches
    kept = {**images.kept, **passed.kept}
    copies = {"checkpointed": run.checkpointed}
    return Samples(
        at_images=group(images.forward),
        at_loss=group(kept, {"logits and loss": tokens * loss.forward}),
        at_loss_backward=group(kept, {"logits and loss": tokens * loss.backward}),
        at_last_layer=group(kept, passed.last_layer, {"logits and loss": tokens * loss.kept}),
        at_first_layer=group(images.kept, passed.first_layer),
        at_experts=group(images.kept, passed.one_layer),
        after_text=group(images.kept),
        at_images_backward=group(images.kept, images.backward) if images.backward else NOTHING,
        in_evaluation=group(
            passed.forward,
            {"logits and loss": tokens * loss.forward},
            {"kept evaluation logits": text_tokens(workload) * logits},
        ),
        forward_copies=group(forward_casts(counts, widths, **copies)),
        backward_copies=group(backward_casts(counts, widths, **copies)),
        loss_buffers=group({"loss buffers": loss.fixed}),
    )


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
