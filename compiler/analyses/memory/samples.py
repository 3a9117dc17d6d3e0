"""What one sample of a micro batch adds at each moment of a training step."""

from dataclasses import replace
from typing import NamedTuple

from tunec.compiler.analyses.memory.activations import (
    Activations,
    Pass,
    text_activations,
    text_tokens,
)
from tunec.compiler.analyses.memory.arithmetic import Arithmetic, arithmetic
from tunec.compiler.analyses.memory.casts import (
    backward_casts,
    evaluation_casts,
    forward_casts,
    head_cast,
)
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.diffusion import denoiser_activations
from tunec.compiler.analyses.memory.evaluation import kept_logits
from tunec.compiler.analyses.memory.frozen_units import retained, retains_inputs
from tunec.compiler.analyses.memory.fsdp_units import computed_states
from tunec.compiler.analyses.memory.lora import (
    adapters_working,
    experts_merged,
    experts_merging,
    weights_kept,
)
from tunec.compiler.analyses.memory.loss import judged_tokens, loss_bytes
from tunec.compiler.analyses.memory.phase import (
    NOTHING,
    Group,
    Terms,
    group,
    times,
)
from tunec.compiler.analyses.memory.projection import LossBytes
from tunec.compiler.analyses.memory.reference import reference_forward
from tunec.compiler.analyses.memory.sharding import PARAMETERS
from tunec.compiler.analyses.memory.vision import image_activations
from tunec.compiler.analyses.memory.workload import NO_FSDP, Workload
from tunec.compiler.ir.caches import cached
from tunec.compiler.ir.slots import ActivationCheckpointing, Fsdp, Parallel, States
from tunec.schemas.models.architecture import Part


class Samples(NamedTuple):
    """What one sample adds, and what autocast copies, at each moment of a step."""

    at_images: Group
    embedded: Group
    """The embedding's result."""
    at_loss: Group
    at_loss_backward: Group
    at_last_layer: Group
    until_backward: Group
    """What layers keep until they are differentiated."""
    in_begun_layer: Group
    """A layer whose differentiation has begun, with what it kept."""
    in_half_layer: Group
    """A layer when its feed-forward is done, with what its other half still keeps."""
    at_expansion: Group
    """While a product in the last layer expands a quantised weight."""
    at_first_layer: Group
    at_experts: Group
    at_first_segment: Group
    """Several layers that were recomputed together, before the first is differentiated."""
    at_norms: Group
    """While DoRA makes the norms of a layer's weights."""
    of_encoder: Group
    after_text: Group
    at_images_backward: Group
    in_evaluation: Group
    in_scoring: Group
    """While what was written is scored: in a pass that keeps nothing, when its layers are done."""
    forward: Group
    """What a layer works in, in a pass that keeps nothing."""
    adapting: Group
    """What adapters add to that."""
    head_copy: Group
    """That of a frozen output projection, while it is multiplied with."""
    evaluation_copies: Group
    """16-bit copies of weights in such a pass."""
    at_reference: Group
    """In the layers of a reference model, the trained one's graph alive."""
    at_reference_loss: Group
    """When its layers are done."""
    forward_copies: Group
    """16-bit copies of weights; these and the buffers do not depend on the samples."""
    backward_copies: Group
    last_copies: Group
    """Those that are left when the output projection is done."""
    merging: Group
    """Experts with their adapters merged, of the layer that is differentiated."""
    loss_buffers: Group
    loss_buffers_backward: Group


def pass_of(
    workload: Workload,
    parallel: Parallel,
    states: States,
    checkpointing: ActivationCheckpointing,
    *,
    padded: bool,
    fsdp: Fsdp = NO_FSDP,
    stage: int = 0,
) -> Pass:
    """How one forward and backward pass of a layout runs; `stage`: of DeepSpeed's ZeRO."""
    return Pass(
        states=computed_states(
            states, workload.precision.compute, fsdp, adapted=bool(workload.adapted)
        ),
        checkpointed=checkpointing.mode == "layer",
        padded=padded and workload.attention.implementation == "sdpa",
        sequence_parallel=parallel.sequence,
        gathered=parallel.data if workload.kept_evaluation_batches else 1,
        segment=checkpointing.segment,
        gap=checkpointing.gap,
        offload=checkpointing.offload,
        reentrant=checkpointing.reentrant,
        retains=retains_inputs(workload, checkpointing, fsdp),
        keeps_inputs=stage == PARAMETERS and parallel.engine == "deepspeed",
    )


@cached(2048)
def samples_of(workload: Workload, run: Pass) -> Samples:
    """What one sample of a workload adds at each moment; remembered for all layouts that run so.

    Ranks that share a sequence evaluate whole ones, each its own (accelerate 1.15 `accelerator.py`,
    `_prepare_deepspeed`: `disable_in_eval`).
    """
    found = _samples(workload, run)
    if run.sequence_parallel > 1 and workload.data.evaluation is not None:
        alone = _samples(workload, replace(run, sequence_parallel=1))
        found = found._replace(in_evaluation=alone.in_evaluation)
    sequences = workload.preference.sequences if workload.preference is not None else 1
    return found if sequences == 1 else of_sequences(found, sequences)


def _samples(workload: Workload, run: Pass) -> Samples:
    """What one sample of one sequence adds, evaluated as it is trained on."""
    passed, images = activations(workload, run), image_activations(workload, run)
    loss, counts = loss_of(workload, run.states, short=run.short), count(workload)
    at_once = workload.loss == "full"
    widths = arithmetic(workload, run.states, main_part(workload))
    tokens = text_tokens(workload) / run.sequence_parallel
    judged = judged_tokens(workload) / run.sequence_parallel
    kept = {**images.kept, **passed.kept}
    waiting = {name: size for name, size in kept.items() if name != "final norm"}
    held = loss.kept if workload.loss != "full" else loss.forward
    evaluated = _evaluated(workload, widths, tokens, judged * loss.forward)
    predicted = kept_logits(workload, widths, run.gathered)
    adapting = {"adapters' products": tokens * adapters_working(workload, widths)}
    copies = {"checkpointed": run.checkpointed and not run.gap}
    merged = _merged(workload, widths, **copies)
    recomputed = passed.one_layer if run.checkpointed else {}
    layers = sum(stack.layers for stack in workload.architecture.stacks)
    retaining = retained(passed.kept, layers) if run.retains else {}
    return Samples(
        at_images=group(images.forward),
        embedded=group(_embedded(workload, widths, tokens)),
        at_loss=group(kept, {"logits and loss": judged * loss.forward}),
        at_loss_backward=group(kept, {"logits and loss": judged * loss.backward}),
        at_last_layer=group(
            waiting if main_part(workload) == "text" else kept,
            passed.last_layer,
        ),
        until_backward=group(waiting),
        in_begun_layer=group(passed.begun or passed.last_layer),
        in_half_layer=group(passed.half or passed.begun or passed.last_layer),
        at_expansion=group(waiting, passed.expanding) if counts.quantized else NOTHING,
        at_first_layer=group(images.kept, passed.first_layer, retaining),
        at_experts=group(images.kept, passed.one_layer),
        at_first_segment=group(images.kept, passed.first_segment)
        if passed.first_segment
        else NOTHING,
        at_norms=group(kept, recomputed) if workload.adapter.dora else NOTHING,
        of_encoder=group(passed.encoder),
        after_text=NOTHING if images.after_embedding else group(images.kept),
        at_images_backward=group(images.kept, images.backward) if images.backward else NOTHING,
        in_evaluation=group(_larger({**passed.forward, **adapting}, evaluated), predicted),
        in_scoring=group(evaluated) if workload.preference is not None else NOTHING,
        forward=group(passed.forward),
        adapting=group(adapting),
        head_copy=group(head_cast(counts, widths)),
        evaluation_copies=group(evaluation_casts(counts, widths)),
        at_reference=reference_forward(workload, kept, passed.forward, tokens * held),
        at_reference_loss=reference_forward(workload, kept, {}, tokens * (held + loss.forward)),
        forward_copies=group(forward_casts(counts, widths, **copies, head=at_once), merged),
        backward_copies=group(backward_casts(counts, widths, **copies, head=at_once), merged),
        last_copies=group(
            {} if run.checkpointed else backward_casts(counts, widths, **copies, head=at_once),
            merged,
        ),
        merging=group(experts_merging(workload, widths, **copies)),
        loss_buffers=_buffers(loss.fixed),
        loss_buffers_backward=_buffers(loss.fixed_backward),
    )


def _merged(workload: Workload, widths: Arithmetic, *, checkpointed: bool) -> Terms:
    """Weights that adapters make anew, from the forward pass to the backward pass."""
    found = dict(experts_merged(workload, widths, checkpointed=checkpointed))
    cast = 0.0 if checkpointed else weights_kept(workload, widths, checkpointed=False)
    return {**found, "casts for norms": cast} if cast else found


def _buffers(size: float) -> Group:
    return group({"loss buffers": size}) if size else NOTHING


def _embedded(workload: Workload, widths: Arithmetic, tokens: float) -> Terms:
    return {"text layer inputs": tokens * widths.stream * workload.architecture.hidden}


def _evaluated(workload: Workload, widths: Arithmetic, tokens: float, loss: float) -> Terms:
    """Logits and loss where nothing is kept but the hidden states that they are made of.

    What a cap on the logits keeps for its gradient is gone.
    """
    model = workload.architecture
    capped = widths.compute * model.vocab if model.logit_softcap and workload.loss == "full" else 0
    hidden = widths.stream * model.hidden
    made = loss - judged_tokens(workload) * capped
    return {"logits and loss": made, "final norm": tokens * hidden}


def _larger(first: Terms, second: Terms) -> Terms:
    return max(first, second, key=lambda terms: sum(terms.values()))


def of_sequences(samples: Samples, number: int) -> Samples:
    """What a sample of several sequences adds; copies and buffers are the same for all."""
    shared = (
        *("forward_copies", "backward_copies", "last_copies", "merging"),
        *("evaluation_copies", "head_copy"),
        *("loss_buffers", "loss_buffers_backward"),
    )
    names = [name for name in Samples._fields if name not in shared]
    return samples._replace(**{name: times(getattr(samples, name), number) for name in names})


def main_part(workload: Workload) -> Part:
    """The part whose widths are those of the whole run."""
    return "denoiser" if workload.architecture.kind == "diffusion" else "text"


def activations(workload: Workload, run: Pass) -> Activations:
    """Activations of the model that is trained: a language model or a denoiser."""
    if workload.architecture.kind == "diffusion":
        return denoiser_activations(workload, run)
    return text_activations(workload, run)


@cached(1024)
def loss_of(workload: Workload, states: States, *, short: bool = False) -> LossBytes:
    """What the loss of this workload holds, in bytes a token."""
    counts = count(workload)
    widths = arithmetic(workload, states, main_part(workload))
    trained = counts.head > 0 or counts.tied
    return loss_bytes(
        workload,
        widths.compute,
        head_trained=trained,
        autocast=states.autocast,
        casts=widths.casts,
        short=short,
    )
