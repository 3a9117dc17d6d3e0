"""The phases of a training step, from the layout's figures."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from tunec.compiler.analyses.memory.activations import (
    Activations,
    Pass,
    text_activations,
    text_tokens,
)
from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.casts import backward_casts, forward_casts
from tunec.compiler.analyses.memory.counts import Counts, count
from tunec.compiler.analyses.memory.diffusion import denoiser_activations
from tunec.compiler.analyses.memory.gradients import (
    at_embedding,
    at_experts,
    at_first_layer,
    at_last_layer,
    at_loss,
)
from tunec.compiler.analyses.memory.loss import LossBytes, loss_bytes
from tunec.compiler.analyses.memory.phase import Phase, Terms, evaluation_phase, phase
from tunec.compiler.analyses.memory.sharding import (
    Sharding,
    kept_gradients,
    optimizer_step,
    resident,
    sharding,
)
from tunec.compiler.analyses.memory.vision import Images, image_activations
from tunec.compiler.analyses.memory.weights import gathered, gathered_layer, weights
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import ActivationCheckpointing, Parallel, States, Zero
from tunec.schemas.models.architecture import Part


@dataclass(frozen=True, slots=True)
class Step:
    """Everything that a training step of one layout is made of."""

    workload: Workload
    counts: Counts
    plan: Sharding
    run: Pass
    widths: Arithmetic
    always: Terms
    """Weights and training state that never leave."""
    turning: Terms
    """Parameters that ZeRO stage 3 has made whole where forward turns to backward."""
    ending: Terms
    """The same near the end of the backward pass."""
    passed: Activations
    loss: LossBytes
    images: Images


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
    counts = count(workload)
    plan = sharding(counts, parallel, states, zero, accumulates=accumulates)
    run = Pass(
        states=states,
        checkpointed=checkpointing.mode == "layer",
        padded=padded and workload.attention.implementation == "sdpa",
        sequence_parallel=parallel.sequence,
        tensor_parallel=parallel.tensor,
    )
    layers = sum(stack.layers for stack in workload.architecture.stacks)
    step = Step(
        workload=workload,
        counts=counts,
        plan=plan,
        run=run,
        widths=arithmetic(workload, counts, states, main_part(workload)),
        always={**weights(workload, plan), **resident(workload, plan)},
        turning=gathered(plan, layers, checkpointed=run.checkpointed),
        ending=gathered_layer(plan, layers),
        passed=activations(workload, run),
        loss=loss_of(workload, states),
        images=image_activations(workload, run),
    )
    return (*_forward(step), *_backward(step), *_update(step), _evaluation(step))


def _forward(step: Step) -> Iterable[Phase]:
    """From the images to the loss."""
    kept = kept_gradients(step.plan)
    copies = forward_casts(step.counts, step.widths, checkpointed=step.run.checkpointed)
    if step.images.forward:
        yield phase(
            "vision forward",
            fixed=(step.always, step.turning, kept),
            samples=(step.images.forward,),
        )
    yield phase(
        "loss forward",
        fixed=(step.always, step.turning, copies, kept, {"loss buffers": step.loss.fixed}),
        samples=(step.images.kept, step.passed.kept, _per_sample(step, step.loss.forward)),
    )


def _backward(step: Step) -> Iterable[Phase]:
    """From the loss to the embedding, and on to the images where a gradient goes there."""
    copies = backward_casts(step.counts, step.widths, checkpointed=step.run.checkpointed)
    yield phase(
        "loss backward",
        fixed=(
            step.always,
            step.turning,
            copies,
            at_loss(step.plan),
            {"loss buffers": step.loss.fixed},
        ),
        samples=(step.images.kept, step.passed.kept, _per_sample(step, step.loss.backward)),
    )
    yield phase(
        "last layer backward",
        fixed=(step.always, step.turning, copies, at_last_layer(step.plan)),
        samples=(
            step.images.kept,
            step.passed.kept,
            step.passed.last_layer,
            _per_sample(step, step.loss.kept),
        ),
    )
    yield phase(
        "first layer backward",
        fixed=(step.always, step.ending, at_first_layer(step.plan)),
        samples=(step.images.kept, step.passed.first_layer),
    )
    if step.counts.experts:
        yield phase(
            "experts backward",
            fixed=(step.always, step.ending, at_experts(step.plan)),
            samples=(step.images.kept, step.passed.one_layer),
        )
    yield phase(
        "embedding backward",
        fixed=(step.always, step.ending, at_embedding(step.plan)),
        samples=(step.images.kept,),
    )
    if step.images.backward:
        yield phase(
            "vision backward",
            fixed=(step.always, step.ending, at_embedding(step.plan)),
            samples=(step.images.kept, step.images.backward),
        )


def _update(step: Step) -> Iterable[Phase]:
    yield phase(
        "optimizer step",
        fixed=(step.always, optimizer_step(step.workload, step.plan)),
        samples=(),
    )


def _evaluation(step: Step) -> Phase:
    """Evaluation under no_grad: one layer's working set, then the loss, and logits that are kept."""
    tokens, model = text_tokens(step.workload), step.workload.architecture
    logits = step.widths.compute * model.vocab * step.workload.kept_evaluation_batches
    return evaluation_phase(
        "evaluation",
        fixed=(step.always, step.turning),
        samples=(
            step.passed.forward,
            _per_sample(step, step.loss.forward),
            {"kept evaluation logits": float(tokens * logits)},
        ),
    )


def main_part(workload: Workload) -> Part:
    """The part whose widths are those of the whole run."""
    return "denoiser" if workload.architecture.kind == "diffusion" else "text"


def activations(workload: Workload, run: Pass) -> Activations:
    """Activations of the model that is trained: a language model or a denoiser."""
    if workload.architecture.kind == "diffusion":
        return denoiser_activations(workload, run)
    return text_activations(workload, run)


def loss_of(workload: Workload, states: States) -> LossBytes:
    """What the loss of this workload holds, in bytes a token."""
    counts = count(workload)
    widths = arithmetic(workload, counts, states, main_part(workload))
    return loss_bytes(workload, widths.compute, head_trained=counts.head > 0 or counts.tied)


def _per_sample(step: Step, token_bytes: float) -> Terms:
    tokens = text_tokens(step.workload) / step.run.sequence_parallel
    return {"logits and loss": tokens * token_bytes}
