"""The phases of a training step, from the layout's figures."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tunec.compiler.analyses.memory.activations import Pass, text_tokens
from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.fixed import Fixed, fixed_of, fixed_of_fsdp
from tunec.compiler.analyses.memory.generation import (
    answered,
    generating_states,
    reading,
    summoned,
    writing,
)
from tunec.compiler.analyses.memory.gradients import at_first_layer, at_head, head_stepped
from tunec.compiler.analyses.memory.inference import (
    EVERYTHING,
    EXPANDED,
    casting_nothing,
    whole_of,
    written_phases,
)
from tunec.compiler.analyses.memory.merging import merged
from tunec.compiler.analyses.memory.phase import (
    Group,
    Phase,
    evaluation_phase,
    group,
    phase,
    scaled,
    times,
)
from tunec.compiler.analyses.memory.rewarded import rewarded
from tunec.compiler.analyses.memory.samples import Samples, pass_of, samples_of
from tunec.compiler.analyses.memory.saving import saved
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding, is_hooked, sharding
from tunec.compiler.analyses.memory.step import at_orthogonalisation
from tunec.compiler.analyses.memory.weights import encoders, loaded_whole
from tunec.compiler.analyses.memory.workload import NO_FSDP, Generation, Workload
from tunec.compiler.ir.caches import cached
from tunec.compiler.ir.slots import ActivationCheckpointing, Fsdp, Parallel, States, Zero

ENCODING: Final = "encoding ahead"
"""The moment before the first step in which captions and pictures become what is trained on."""

LOADING: Final = "loading"
"""The moment before FSDP splits what each rank has read."""

_PROMPT: Final = "evaluation prompt"
_ANSWERS: Final = "evaluation answers"


@cached(8192)
def phases(
    workload: Workload,
    parallel: Parallel,
    states: States,
    zero: Zero,
    checkpointing: ActivationCheckpointing,
    *,
    accumulates: bool,
    padded: bool,
    share: int = 1,
    fsdp: Fsdp = NO_FSDP,
    nodes: int = 1,
    short: bool = False,
) -> tuple[Phase, ...]:
    """All phases of a training step and of evaluation.

    `share`: samples of one device in one optimizer step, where generation goes by them. `nodes`:
    over which the ranks are spread. `short`: whether a micro batch is shorter than a tile of loss.
    """
    stage = zero.stage
    run = pass_of(workload, parallel, states, checkpointing, padded=padded, fsdp=fsdp, stage=stage)
    run = replace(run, short=True) if short else run
    plan = sharding(
        workload, parallel, states, zero, accumulates=accumulates, fsdp=fsdp, nodes=nodes
    )
    samples = samples_of(workload, run)
    make = fixed_of_fsdp if fsdp.version else fixed_of
    fixed = make(workload, plan, checkpointed=run.checkpointed)
    running, turned = (fixed.always, fixed.turning), (fixed.always, fixed.turned)
    ending, first = (fixed.always, fixed.ending), (fixed.at_first_layer, samples.merging)
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
            (*turned, samples.last_copies, fixed.at_last_layer, samples.merging),
            (samples.at_last_layer,),
        ),
        phase("first layer backward", (*ending, *first), (samples.at_first_layer,)),
        phase("embedding backward", (*ending, fixed.at_embedding), (samples.after_text,)),
        *_at_head(workload, plan, samples, fixed, run),
        *_head_step(plan, samples, fixed),
        *_reductions(fixed, samples),
        phase("optimizer step", (fixed.always, fixed.in_step)),
        evaluation_phase(
            "evaluation",
            (*running, fixed.evaluating, samples.evaluation_copies),
            (samples.in_evaluation,),
        ),
    ]
    beside = _beside_training(workload, plan, (samples, run), fixed, share)
    return (*found, *_further(plan, samples, fixed, run.segment), *beside)


def _at_head(
    workload: Workload, plan: Sharding, samples: Samples, fixed: Fixed, run: Pass
) -> Iterator[Phase]:
    """The gradient of the output projection as it is made, the logits' own still there.

    Only where it can be higher than the loss: of logits of so many tokens three tensors in fp32 are
    gone by then. That of earlier micro batches is beside it. Where autocast copied the weight, a
    gradient in the copy's dtype has come in its place, and the logits' is gone, when it is widened.
    """
    counts, model = plan.counts, workload.architecture
    head = counts.embedding if counts.tied else counts.head
    if not head or workload.loss != "full":
        return
    widths = arithmetic(workload, run.states, "text")
    width, tokens = widths.compute, text_tokens(workload) / run.sequence_parallel
    made = width + widths.casts * plan.parameter
    if made * model.hidden <= (12 - width) * tokens or plan.fsdp.version or is_hooked(plan):
        return
    beside = {"largest gradient": float(plan.parameter * plan.accumulates * head)}
    logits = {"logits and loss": tokens * width * model.vocab * (not widths.casts)}
    gradients = group(at_head(plan)) if plan.releases else fixed.at_last_layer
    there = (fixed.always, fixed.turning, gradients, samples.backward_copies)
    kept = {"final norm": float(samples.at_loss.terms.get("final norm", 0))}
    phase_samples = (samples.until_backward, group(kept, logits))
    yield phase("head backward", (*there, group(beside)), phase_samples)


def _head_step(plan: Sharding, samples: Samples, fixed: Fixed) -> Iterator[Phase]:
    """The output projection stepped, where that is done on the way, beside all that layers keep."""
    if plan.releases:
        held = (fixed.always, samples.last_copies, group(head_stepped(plan)))
        kept = group({"final norm": float(samples.at_loss.terms.get("final norm", 0))})
        yield phase("head stepped backward", held, (samples.until_backward, kept))


def _reductions(fixed: Fixed, samples: Samples) -> Iterator[Phase]:
    """The reductions of gradients: all at the end, or each as it comes."""
    if not fixed.on_the_way:
        yield phase("gradient reduction", (fixed.always, fixed.ending, fixed.at_reduction))
    if fixed.again.total:
        # of the ten bytes that a loss takes for each logit four stay, its logarithms
        stays = scaled(samples.at_loss, 0.4), scaled(samples.until_backward, 0.6)
        yield phase("root gathering backward", (fixed.always, fixed.again), stays)
    for one, gradients, whole in fixed.on_the_way:
        name, held = f"gradient reduction {one.number}", (fixed.always, whole, gradients)
        if not one.inside and not one.left:
            yield phase(name, held)
            continue
        layer = samples.in_begun_layer if one.is_whole else samples.in_half_layer
        waiting = scaled(samples.until_backward, one.left)
        yield phase(name, held, (waiting, layer) if one.inside else (waiting,))


def _further(plan: Sharding, samples: Samples, fixed: Fixed, segment: int) -> Iterator[Phase]:
    """Phases that only some workloads have."""
    running, ending = (fixed.always, fixed.turning), (fixed.always, fixed.ending)
    if samples.at_reference.total:
        held = (*running, samples.forward_copies, fixed.kept)
        yield phase("reference forward", held, (samples.at_reference,))
        compared = (*held, samples.loss_buffers)
        yield phase("reference loss", compared, (samples.at_reference_loss,))
    yield from _gatherings(samples, fixed)
    yield from _first_segment(plan, samples, fixed, segment)
    if plan.halves is not None and 0 < plan.stage < PARAMETERS:
        updates = group(at_orthogonalisation(plan, plan.halves))
        yield phase("orthogonalisation after backward", (fixed.always, updates))
    if samples.at_expansion.total:
        weight = {"expanded weight": float(plan.counts.expanded * EXPANDED)}
        there = (fixed.always, fixed.turned, fixed.at_last_layer, samples.last_copies)
        yield phase("weight expansion backward", (*there, group(weight)), (samples.at_expansion,))
    if fixed.norms.total:
        at_norms = (*running, fixed.at_first_layer, fixed.norms)
        yield phase("adapter norms", at_norms, (samples.at_norms,))
    if plan.counts.experts:
        yield _at_experts(plan, samples, fixed)
    if samples.of_encoder.total and fixed.at_decoder_embedding.total:
        of_encoder = plan.counts.encoder / max(plan.counts.trainable, 1)
        copies = scaled(samples.last_copies, of_encoder)
        shared = (*ending, fixed.at_decoder_embedding, copies)
        yield phase("decoder embedding backward", shared, (samples.of_encoder,))
    if samples.at_images.total:
        yield phase("vision forward", (*running, fixed.kept), (samples.at_images,))
    if samples.at_images_backward.total:
        yield phase("vision backward", (*ending, fixed.at_vision), (samples.at_images_backward,))


def _gatherings(samples: Samples, fixed: Fixed) -> Iterator[Phase]:
    """A forward pass where most is gathered at once."""
    share_run, gathering = fixed.gathering
    if gathering.total:
        kept = scaled(samples.until_backward, share_run)
        yield phase("parameter gathering", (fixed.always, gathering), (kept,))
    if fixed.begins.total:
        yield phase("first gathering", (fixed.always, fixed.begins), (samples.embedded,))


def _at_experts(plan: Sharding, samples: Samples, fixed: Fixed) -> Phase:
    """A layer's experts with their gradients: the first layer's, where others wait, or the last's.

    Stage 3 has more parameters whole the earlier it is in a backward pass.
    """
    name, held = "experts backward", (fixed.always, fixed.at_experts)
    if not plan.leaf:
        return phase(name, (*held, fixed.ending), (samples.at_experts,))
    layers = sum(stack.layers for stack in plan.workload.architecture.stacks)
    waiting = scaled(samples.until_backward, 1 - 1 / max(layers, 1))
    return phase(name, (*held, fixed.turned), (waiting, samples.in_half_layer))


def _beside_training(
    workload: Workload, plan: Sharding, passed: tuple[Samples, Pass], fixed: Fixed, share: int
) -> Iterator[Phase]:
    """What comes before a step, or after the last: answers, checkpoints, merging, encoding.

    And loading, where FSDP splits a base that each rank has read whole.
    """
    samples, run = passed
    if workload.generation or workload.preference or workload.evaluated:
        answering = casting_nothing(workload, run, samples)
        yield from rewarded(workload, plan, (samples, answering), fixed, share)
        if workload.evaluated is not None:
            yield from _answered(workload, plan, workload.evaluated, answering, fixed)
    whole = saved(workload, plan) if plan.stage == PARAMETERS else {}
    if whole:
        yield phase("saving", (fixed.always, group(whole)))
    if workload.adapter.merge == "device":
        yield phase("merging", (fixed.always, group(merged(workload, plan))))
    if plan.counts.components:
        yield phase(ENCODING, (group(encoders(plan)),))
    if plan.fsdp.version and plan.counts.quantized:
        yield phase(LOADING, (group(loaded_whole(workload, plan)),))


def _answered(
    workload: Workload, plan: Sharding, asked: Generation, samples: Samples, fixed: Fixed
) -> Iterator[Phase]:
    """The last token of what evaluation writes for each sample of its batch, and the prompts."""
    summons = summoned(workload, plan)
    whole = whole_of(plan, fixed)
    if summons:
        whole = EVERYTHING._replace(layers=group(summons))
    kept = group(answered(asked, plan.shards))
    of_layer, tokens = samples.forward.total + samples.adapting.total, text_tokens(workload)
    states = generating_states(workload, plan.states)
    told = (
        reading(workload, states, asked, of_layer, tokens),
        writing(workload, states, asked),
    )
    expanded = group({"expanded weight": float(plan.counts.expanded * EXPANDED)})
    weight = max(samples.head_copy, expanded, key=lambda each: each.total)

    def put(name: str, alone: tuple[Group, ...], answers: Group) -> Phase:
        besides = (weight,) if name == _ANSWERS else ()
        return evaluation_phase(name, (*alone, *besides), (times(answers, asked.beams), kept))

    held = (fixed.always, samples.evaluation_copies)
    yield from written_phases((_PROMPT, _ANSWERS), whole, held, told, put)


def _first_segment(plan: Sharding, samples: Samples, fixed: Fixed, segment: int) -> Iterator[Phase]:
    """Several layers that have been recomputed, of which none is differentiated yet."""
    if not samples.at_first_segment.total:
        return
    there = fixed.at_first_layer
    if not plan.fsdp.version:
        there = group(at_first_layer(plan, segment))
    begun = (fixed.always, fixed.ending, there, samples.merging)
    yield phase("first segment backward", begun, (samples.at_first_segment,))
