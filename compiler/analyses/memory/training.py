"""The phases of a training step, from the layout's figures."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.activations import text_tokens
from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.fsdp import (
    held,
)
from tunec.compiler.analyses.memory.generation import (
    answered,
    generating,
    prompting,
    reading,
    summoned,
    writing,
)
from tunec.compiler.analyses.memory.gradients import (
    at_decoder_embedding,
    at_embedding,
    at_experts,
    at_first_layer,
    at_last_layer,
    at_loss,
    at_reduction,
    at_reduction_on_the_way,
    at_vision,
    kept_gradients,
)
from tunec.compiler.analyses.memory.lora import (
    norms_working,
    weights_kept,
)
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
from tunec.compiler.analyses.memory.reductions import Reduction
from tunec.compiler.analyses.memory.samples import Samples, main_part, pass_of, samples_of
from tunec.compiler.analyses.memory.saving import saved
from tunec.compiler.analyses.memory.sharding import (
    PARAMETERS,
    Sharding,
    resident,
    sharding,
)
from tunec.compiler.analyses.memory.step import at_orthogonalisation, optimizer_step
from tunec.compiler.analyses.memory.weights import (
    encoders,
    gathered,
    gathered_at,
    gathered_last,
    gathered_layer,
    gathered_together,
    second_shards,
    weights,
)
from tunec.compiler.analyses.memory.workload import NO_FSDP, Generation, Workload
from tunec.compiler.ir.slots import ActivationCheckpointing, Fsdp, Parallel, States, Zero

ENCODING: Final = "encoding ahead"
"""The moment before the first step in which captions and pictures become what is trained on."""

_EXPANDED: Final = 2
"""Bytes of an element of a quantised weight while it is multiplied with (bitsandbytes 0.50.2
`functional.py`, `dequantize_4bit`: 16 bit)."""


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
    on_the_way: tuple[tuple[Reduction, Group, Group], ...]
    """Each reduction as gradients come, with its gradients, and parameters that are whole then."""
    in_step: Group
    norms: Group
    """What DoRA makes its norms in, and the weights that it keeps a cast of."""
    turned: Group = NOTHING
    """Parameters that ZeRO stage 3 has made whole when the last layer is differentiated."""
    evaluating: Group = NOTHING
    """What a forward pass makes whole besides."""
    gathering: tuple[float, Group] = (0.0, NOTHING)
    """What is held while a forward pass gathers most at once, and the share of layers that ran."""
    again: Group = NOTHING
    """The same while FSDP gathers the root unit anew for the backward pass."""


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
    share: int = 1,
    fsdp: Fsdp = NO_FSDP,
    nodes: int = 1,
    short: bool = False,
) -> tuple[Phase, ...]:
    """All phases of a training step and of evaluation.

    `share`: samples of one device in one optimizer step, where generation goes by them. `nodes`:
    over which the ranks are spread. `short`: whether a micro batch has fewer tokens than a tile of
    the loss has rows.
    """
    run = pass_of(workload, parallel, states, checkpointing, padded=padded, fsdp=fsdp)
    run = replace(run, short=True) if short else run
    plan = sharding(
        workload, parallel, states, zero, accumulates=accumulates, fsdp=fsdp, nodes=nodes
    )
    samples = samples_of(workload, run)
    make = _fixed_of_fsdp if fsdp.version else fixed_of
    fixed = make(workload, plan, checkpointed=run.checkpointed)
    running, turned = (fixed.always, fixed.turning), (fixed.always, fixed.turned)
    ending = (fixed.always, fixed.ending)
    first = (fixed.at_first_layer, samples.merging)
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
        *_reductions(fixed, samples),
        phase("optimizer step", (fixed.always, fixed.in_step)),
        evaluation_phase(
            "evaluation",
            (*running, fixed.evaluating, samples.evaluation_copies),
            (samples.in_evaluation,),
        ),
    ]
    before = [phase(ENCODING, (group(encoders(plan)),))] if plan.counts.components else []
    further = _further(workload, plan, samples, fixed, share, run.segment)
    return (*found, *further, *_beside_training(workload, plan, samples, fixed), *before)


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


def _further(
    workload: Workload, plan: Sharding, samples: Samples, fixed: Fixed, share: int, segment: int
) -> Iterator[Phase]:
    """Phases that only some workloads have."""
    running, ending = (fixed.always, fixed.turning), (fixed.always, fixed.ending)
    if samples.at_reference.total:
        held = (*running, samples.forward_copies, fixed.kept)
        yield phase("reference forward", held, (samples.at_reference,))
        compared = (*held, samples.loss_buffers)
        yield phase("reference loss", compared, (samples.at_reference_loss,))
    yield from _generated(workload, plan, samples, fixed, share)
    share_run, gathering = fixed.gathering
    if gathering.total:
        kept = scaled(samples.until_backward, share_run)
        yield phase("parameter gathering", (fixed.always, gathering), (kept,))
    yield from _first_segment(plan, samples, fixed, segment)
    if plan.halves is not None and 0 < plan.stage < PARAMETERS:
        updates = group(at_orthogonalisation(plan, plan.halves))
        yield phase("orthogonalisation after backward", (fixed.always, updates))
    if samples.at_expansion.total:
        weight = {"expanded weight": float(plan.counts.expanded * _EXPANDED)}
        there = (fixed.always, fixed.turned, fixed.at_last_layer, samples.last_copies)
        yield phase("weight expansion backward", (*there, group(weight)), (samples.at_expansion,))
    if fixed.norms.total:
        at_norms = (*running, fixed.at_first_layer, fixed.norms)
        yield phase("adapter norms", at_norms, (samples.at_norms,))
    if plan.counts.experts:
        yield _at_experts(plan, samples, fixed)
    if samples.of_encoder.total and fixed.at_decoder_embedding.total:
        shared = (*ending, fixed.at_decoder_embedding)
        yield phase("decoder embedding backward", shared, (samples.of_encoder,))
    if samples.at_images.total:
        yield phase("vision forward", (*running, fixed.kept), (samples.at_images,))
    if samples.at_images_backward.total:
        yield phase("vision backward", (*ending, fixed.at_vision), (samples.at_images_backward,))


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


def _generated(
    workload: Workload, plan: Sharding, samples: Samples, fixed: Fixed, share: int
) -> Iterator[Phase]:
    """The last token of all sequences, and their prompts, which come first."""
    asked = workload.generation
    if asked is None:
        return
    written = group(generating(workload, plan, asked, share))
    yield phase("generation", (fixed.always, fixed.evaluating, written))
    of_layer = samples.forward.total + samples.adapting.total
    read = group(prompting(workload, plan, asked, of_layer, share))
    yield phase("prompt", (fixed.always, fixed.evaluating, read))


def _beside_training(
    workload: Workload, plan: Sharding, samples: Samples, fixed: Fixed
) -> Iterator[Phase]:
    """What evaluation writes, and what a checkpoint gathers where parameters are sharded."""
    if workload.evaluated is not None:
        yield from _answered(workload, plan, workload.evaluated, samples, fixed)
    whole = saved(workload, plan) if plan.stage == PARAMETERS else {}
    if whole:
        yield phase("saving", (fixed.always, group(whole)))


def _answered(
    workload: Workload, plan: Sharding, asked: Generation, samples: Samples, fixed: Fixed
) -> Iterator[Phase]:
    """The last token of what evaluation writes for each sample of its batch, and the prompts."""
    whole = fixed.gathering[1] if fixed.gathering[1].total else fixed.evaluating
    whole = whole if plan.fsdp.version else fixed.turning
    summons = summoned(workload, plan)
    held = (fixed.always, group(summons) if summons else whole, samples.evaluation_copies)
    kept = group(answered(asked, plan.shards))
    of_layer, tokens = samples.forward.total + samples.adapting.total, text_tokens(workload)
    read = group(reading(workload, plan.states, asked, of_layer, tokens))
    yield evaluation_phase("evaluation prompt", held, (times(read, asked.beams), kept))
    written = group(writing(workload, plan.states, asked))
    expanded = group({"expanded weight": float(plan.counts.expanded * _EXPANDED)})
    weight = max(samples.head_copy, expanded, key=lambda each: each.total)
    told = (times(written, asked.beams), kept)
    yield evaluation_phase("evaluation answers", (*held, weight), told)


def _first_segment(plan: Sharding, samples: Samples, fixed: Fixed, segment: int) -> Iterator[Phase]:
    """Several layers that have been recomputed, of which none is differentiated yet."""
    if not samples.at_first_segment.total:
        return
    there = fixed.at_first_layer
    if not plan.fsdp.version:
        there = group(at_first_layer(plan, segment))
    begun = (fixed.always, fixed.ending, there, samples.merging)
    yield phase("first segment backward", begun, (samples.at_first_segment,))


def always_held(workload: Workload, plan: Sharding) -> Group:
    """Weights and training state that never leave: the least that any phase holds."""
    return group(weights(workload, plan), resident(workload, plan))


@lru_cache(maxsize=4096)
def fixed_of(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Fixed:
    """What a layout holds at each moment, whatever the micro batch."""
    layers = sum(stack.layers for stack in workload.architecture.stacks)
    dora = workload.adapter.dora and bool(workload.adapted)
    share, gathering = gathered_together(plan, checkpointed=checkpointed)
    return Fixed(
        always=always_held(workload, plan),
        turning=group(gathered(plan, checkpointed=checkpointed)),
        turned=group(gathered_last(plan, layers, checkpointed=checkpointed)),
        ending=group(gathered_layer(plan, layers, checkpointed=checkpointed)),
        kept=group(kept_gradients(plan)),
        at_loss=group(at_loss(plan)),
        at_last_layer=group(at_last_layer(plan)),
        at_first_layer=group(at_first_layer(plan)),
        at_experts=group(at_experts(plan)) if plan.counts.experts else NOTHING,
        at_embedding=group(at_embedding(plan)),
        at_decoder_embedding=group(at_decoder_embedding(plan)) if plan.counts.tied else NOTHING,
        at_vision=group(at_vision(plan)),
        at_reduction=group(at_reduction(plan)),
        on_the_way=tuple(
            (
                one,
                group(at_reduction_on_the_way(plan, one)),
                group(gathered_at(plan, layers, one.left, checkpointed=checkpointed)),
            )
            for one in plan.reductions
        ),
        in_step=group(
            optimizer_step(workload, plan),
            {} if plan.parameters_away else {"second shards": second_shards(plan)},
        ),
        norms=group(_norms(workload, plan.states, checkpointed=checkpointed)) if dora else NOTHING,
        gathering=(share, group(gathering, kept_gradients(plan))) if gathering else (0.0, NOTHING),
    )


def _fixed_of_fsdp(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Fixed:
    """The same under FSDP, whose units are whole at other moments than ZeRO's parameters."""
    at = held(workload, plan)
    dora = workload.adapter.dora and bool(workload.adapted)
    first = group(at.at_first_layer)
    moments = [
        *((left, terms, False) for left, terms in at.reductions),
        *((left + checkpointed / _layers(workload), terms, True) for left, terms in at.begun),
    ]
    return Fixed(
        always=always_held(workload, plan),
        turning=NOTHING,
        ending=NOTHING,
        kept=group(at.forward),
        at_loss=group(at.at_loss),
        at_last_layer=group(at.at_last_layer),
        at_first_layer=first,
        at_experts=first,
        at_embedding=group(at.at_embedding),
        at_decoder_embedding=first if plan.counts.tied else NOTHING,
        at_vision=first,
        at_reduction=NOTHING,
        on_the_way=tuple(
            (Reduction(number, 0, 0, 0, 0, left, inside, True, False), group(terms), NOTHING)
            for number, (left, terms, inside) in enumerate(moments, 1)
        ),
        in_step=group(at.in_step),
        norms=group(_norms(workload, plan.states, checkpointed=checkpointed)) if dora else NOTHING,
        gathering=(at.gathering[0], group(at.gathering[1])),
        again=group(at.again),
        evaluating=group({n: s for n, s in at.forward.items() if n != "accumulated gradients"}),
    )


def _layers(workload: Workload) -> int:
    return max(sum(stack.layers for stack in workload.architecture.stacks), 1)


def _norms(workload: Workload, states: States, *, checkpointed: bool) -> Terms:
    widths = arithmetic(workload, states, main_part(workload))
    kept = weights_kept(workload, widths, checkpointed=checkpointed)
    return {"norms of weights": norms_working(workload, widths), "casts for norms": kept}
