"""All terms of a run: those of its plan, those of its passes, and those that depend on both."""

from collections.abc import Iterator
from typing import NamedTuple

from tunec.compiler.analyses.memory.activations import Pass
from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.experts import ExpertsPass
from tunec.compiler.analyses.memory.lora import merged, norms_working, weights_kept
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding, is_hooked
from tunec.compiler.analyses.memory.terms.answers import answer_terms
from tunec.compiler.analyses.memory.terms.fsdp import fsdp_terms, reduced, whole_in_passing
from tunec.compiler.analyses.memory.terms.fsdp_units import run_of
from tunec.compiler.analyses.memory.terms.gathering import gathered_again, gathered_terms
from tunec.compiler.analyses.memory.terms.gradients import (
    at_decoder_embedding,
    goes_as_it_comes,
    gradient_terms,
    head_stepped,
    in_layers,
    last_layer,
    partly,
)
from tunec.compiler.analyses.memory.terms.optimizer import (
    at_orthogonalisation,
    optimizer_states,
    optimizer_step,
)
from tunec.compiler.analyses.memory.terms.passes import (
    activations,
    embedded,
    left_copies,
    losing,
    main_part,
    of_pass,
    sequences_of,
)
from tunec.compiler.analyses.memory.terms.resident_gradients import (
    oversized_terms,
    resident_gradients,
)
from tunec.compiler.analyses.memory.terms.turns import copied_adapters, engine_terms, first_held
from tunec.compiler.analyses.memory.terms.weights import (
    encoders,
    loaded_whole,
    saved,
    second_shards,
    weights,
)
from tunec.compiler.analyses.memory.text import share_ahead
from tunec.compiler.analyses.memory.timeline import (
    At,
    Moment,
    Phase,
    Sizes,
    Term,
    lasting,
    of_samples,
    reduction,
    timeline,
    total,
)
from tunec.compiler.analyses.memory.vision import pictures
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.caches import cached


@cached(4096)
def of_plan(
    workload: Workload, plan: Sharding, *, checkpointed: bool, segment: int
) -> tuple[Term, ...]:
    """The terms of a plan; `segment`: the number of layers that are recomputed together."""
    dora = workload.adapter.dora and bool(workload.adapted)
    if plan.fsdp.version:
        moving = fsdp_terms(workload, plan, checkpointed=checkpointed, dora=dora)
    else:
        moving = _zero(workload, plan, segment, checkpointed=checkpointed, dora=dora)
    return (
        *always_held(workload, plan),
        *moving,
        *(_norms(workload, plan, checkpointed=checkpointed) if dora else ()),
        *(lasting(head_stepped(plan), At.HEAD_STEPPED, At.HEAD_STEPPED) if plan.releases else ()),
        *_beside_training(workload, plan),
    )


@cached(4096)
def always_held(workload: Workload, plan: Sharding) -> tuple[Term, ...]:
    """Weights and training state that stay on the device: the minimum of every phase."""
    begin = first_held(workload)
    found = (
        *engine_terms(workload, plan),
        *lasting(weights(workload, plan), begin, At.END),
        *lasting(copied_adapters(workload, plan), begin, At.END),
        *lasting(optimizer_states(workload, plan), begin, At.END),
        *lasting(resident_gradients(workload, plan), begin, At.END),
    )
    return tuple(term for term in found if term.bytes)


def _zero(
    workload: Workload, plan: Sharding, segment: int, *, checkpointed: bool, dora: bool
) -> Iterator[Term]:
    """Gradients, the step, and the parameters that ZeRO stage 3 gathers."""
    yield from gradient_terms(plan, segment, dora=dora)
    yield from oversized_terms(plan)
    if plan.stage == PARAMETERS:
        yield from gathered_terms(workload, plan, checkpointed=checkpointed)
    second = 0.0 if plan.parameters_away else second_shards(plan)
    yield from lasting({"second shards": second}, At.STEP, At.STEP)
    yield from lasting(optimizer_step(workload, plan), At.STEP, At.STEP)
    if plan.halves is not None and 0 < plan.stage < PARAMETERS:
        updates = at_orthogonalisation(plan, plan.halves)
        yield from lasting(updates, At.ORTHOGONALISATION, At.ORTHOGONALISATION)


def _norms(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Iterator[Term]:
    """The working memory of DoRA's norms, and the weights of which DoRA keeps a cast."""
    widths = arithmetic(workload, plan.states, main_part(workload))
    kept = weights_kept(workload, widths, checkpointed=checkpointed)
    norms = {"norms of weights": norms_working(workload, widths), "casts for norms": kept}
    yield from lasting(norms, At.NORMS, At.NORMS)


def _beside_training(workload: Workload, plan: Sharding) -> Iterator[Term]:
    """Terms before the first step and after the last: encoding, loading, checkpoints, merging."""
    if plan.counts.components:
        yield from lasting(encoders(workload, plan), At.ENCODING, At.ENCODING)
    if plan.fsdp.version and plan.counts.quantized:
        yield from lasting(loaded_whole(workload, plan), At.LOADING, At.LOADING)
    whole: Sizes = saved(workload, plan) if plan.stage == PARAMETERS else {}
    yield from lasting(whole, At.SAVING, At.SAVING)
    if workload.adapter.merge == "device":
        yield from lasting(merged(workload, plan), At.MERGING, At.MERGING)


class UnderWay(NamedTuple):
    """A reduction while a layer is differentiated."""

    moment: Moment
    is_whole: bool
    """Whether the layer's feed-forward still waits for its gradients but the last matrix's."""


def under_way(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Iterator[UnderWay]:
    """Reductions that happen while layers are differentiated."""
    if plan.fsdp.version:
        # gradients of experts are whole only when what the experts kept is gone
        whole = not plan.counts.experts
        run = run_of(workload, plan)
        for number, at in enumerate(reduced(run, plan, checkpointed=checkpointed), 1):
            if at.inside:
                yield UnderWay(reduction(number, at.left), whole)
        return
    for one in plan.reductions:
        if one.inside:
            yield UnderWay(reduction(one.number, one.left), one.is_whole)


def _layer_ends(workload: Workload, plan: Sharding) -> Iterator[Moment]:
    """When a layer's first norm is differentiated, and FSDP has all gradients of the layer.

    Or when the layer is frozen, and the one before it is gathered. Version 1 concatenates gradients
    of trained layers only when the norm is done.
    """
    if plan.fsdp.version != 2 and not (plan.fsdp.version and workload.adapted):
        return
    for number, at in enumerate(reduced(run_of(workload, plan), plan, checkpointed=False), 1):
        if not at.inside and at.left < 1:
            yield reduction(number, at.left)


def _at_norm(workload: Workload, run: Pass) -> Sizes:
    """What the last norm has while it is differentiated; the head's input is gone."""
    width = arithmetic(workload, run.states, "text").compute
    read = losing(workload, run).tokens * width * workload.architecture.hidden
    kept = activations(workload, run).kept.get("final norm", 0.0)
    return {"final norm": max(kept - read, 0.0)}


def _given_back(workload: Workload, run: Pass) -> Sizes:
    """The gradient of what a layer reads, which is as large as what the embedding gives."""
    return {"text layer gradients": float(total(embedded(workload, run)))}


def _between_layers(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Iterator[Moment]:
    """When FSDP 1 reduces a trained layer's gradients, and that of the layer's input waits."""
    if plan.fsdp.version != 1 or workload.adapted:
        return
    for number, at in enumerate(
        reduced(run_of(workload, plan), plan, checkpointed=checkpointed), 1
    ):
        if not at.inside and at.left < 1:
            yield reduction(number, at.left)


@cached(8192)
def phases(workload: Workload, plan: Sharding, run: Pass, share: int) -> tuple[Phase, ...]:
    """All phases of a training step, of evaluation, and of the time before and after training.

    `share`: samples of one device in one optimizer step, if generation or images depend on them.
    """
    checkpointed, segment = run.checkpointed, run.segment
    return timeline(
        (
            *of_plan(workload, plan, checkpointed=checkpointed, segment=segment),
            *of_pass(workload, run),
            *_at_head(workload, plan, run),
            *_in_last_layer(workload, plan, run),
            *_in_layers(workload, plan, run),
            *_at_decoder(workload, plan, run),
            *_at_embedding(workload, plan, run),
            *answer_terms(workload, plan, run, share),
            *lasting(pictures(workload, share), At.FORWARD, At.EVALUATION),
        )
    )


def _at_head(workload: Workload, plan: Sharding, run: Pass) -> Iterator[Term]:
    """The output projection's gradient while it is computed and the logits' gradient still exists.

    It only matters if it can be higher than the loss: with few enough tokens. By then three fp32
    tensors of the logits are freed. The gradient of earlier micro batches is beside it. If autocast
    copied the weight, a gradient in the copy's dtype has been computed instead, and the logits'
    gradient is freed when it is widened.
    """
    counts, model = plan.counts, workload.architecture
    head = counts.embedding if counts.tied else counts.head
    if not head or workload.loss != "full":
        return
    widths, tokens = arithmetic(workload, run.states, "text"), losing(workload, run).tokens
    width = widths.compute
    made = width + widths.casts * plan.parameter
    logits = {"logits and loss": tokens * width * model.vocab * (not widths.casts)}
    if plan.fsdp.version:
        yield from of_samples(logits, At.HEAD, At.HEAD)
        return
    if made * model.hidden <= (12 - width) * tokens or is_hooked(plan):
        return
    beside = {"largest gradient": float(plan.parameter * plan.accumulates * head)}
    yield from lasting(beside, At.HEAD, At.HEAD)
    yield from of_samples(logits, At.HEAD, At.HEAD)


def _in_last_layer(workload: Workload, plan: Sharding, run: Pass) -> Iterator[Term]:
    """The units that FSDP has gathered when the last layer ends its forward pass."""
    if not plan.fsdp.version:
        return
    passed, whole = activations(workload, run), whole_in_passing(workload, plan).layers
    for happens, at in (
        (bool(passed.ending), At.LAST_LAYER_FORWARD),
        (passed.experts is not None, At.LAST_FORWARD),
    ):
        if happens:
            yield from lasting(whole, at, at)


def _in_layers(workload: Workload, plan: Sharding, run: Pass) -> Iterator[Term]:
    """The layer that is differentiated while gradients are reduced, or when its experts are done.

    Of a block of experts that stage 3 gathers as one, the last layer's; of others the first's,
    where most gradients are there.
    """
    passed, number = activations(workload, run), sequences_of(workload)
    share = share_ahead(workload) if passed.ahead is not None else 0.0
    for one in under_way(workload, plan, checkpointed=run.checkpointed):
        own = passed if passed.ahead is None or one.moment.layers > share else passed.ahead
        whole = own.begun or own.last_layer
        layer = whole if one.is_whole else own.half or whole
        yield from of_samples(layer, one.moment, one.moment, number)
    for moment in _layer_ends(workload, plan):
        yield from of_samples(passed.ended, moment, moment, number)
    for begun in plan.reductions:
        if begun.left == 1 and not begun.inside:
            moment = reduction(begun.number, begun.left)
            yield from of_samples(_at_norm(workload, run), moment, moment, number)
    for moment in _between_layers(workload, plan, checkpointed=run.checkpointed):
        yield from of_samples(_given_back(workload, run), moment, moment, number)
    if passed.experts is not None and plan.stage == PARAMETERS and not plan.fsdp.version:
        for at in gathered_again(plan, checkpointed=run.checkpointed):
            layer = passed.experts.beginning if at.is_recomputed else passed.experts.repeated
            yield from of_samples(layer, at.moment, at.moment, number)
    if passed.experts is not None and arithmetic(workload, run.states, "text").trains_experts:
        for moment, layer in _in_experts(plan, passed.experts):
            yield from of_samples(layer, moment, moment, number)


def _in_experts(plan: Sharding, experts: ExpertsPass) -> Iterator[tuple[Moment, Sizes]]:
    """Moments at which the experts' weights get gradients, and the memory of their layer then."""
    yield last_layer(plan, At.LAST_INNER), experts.inner
    yield last_layer(plan, At.LAST_EXPERTS), experts.ending
    if plan.fsdp.version or not is_hooked(plan):
        yield At.FIRST_INNER, experts.inner
        yield At.FIRST_EXPERTS, experts.ending


def _after_decoder(plan: Sharding) -> Sizes:
    """Gradients when the decoder is done and the encoder's last layer is differentiated."""
    if goes_as_it_comes(plan):
        return in_layers(plan, holds=plan.holds(plan.left_to_encoder))
    return partly(plan, plan.arriving - plan.counts.encoder)


def _at_decoder(workload: Workload, plan: Sharding, run: Pass) -> Iterator[Term]:
    """The decoder's end of an embedding that both halves share, before the encoder's layers.

    And, of an encoder that reads no text, the last of its layers.
    """
    passed, number = activations(workload, run), sequences_of(workload)
    encoder = passed.encoder
    of_encoder = plan.counts.encoder / max(plan.counts.trainable, 1)
    copies = {name: round(size) * of_encoder for name, size in left_copies(workload, run).items()}
    if passed.ahead is not None:
        at = At.LAST_OF_ENCODER
        yield from of_samples({**encoder, **passed.ahead.last_layer}, at, at, number)
        yield from lasting(copies, at, at)
        if not plan.fsdp.version:
            yield from lasting(_after_decoder(plan), at, at)
    if plan.counts.tied and total(encoder):
        at = At.DECODER_EMBEDDING
        yield from of_samples(encoder, at, at, number)
        yield from lasting(copies, at, at)
        if not plan.fsdp.version:
            yield from lasting(at_decoder_embedding(plan), at, at)


def _at_embedding(workload: Workload, plan: Sharding, run: Pass) -> Iterator[Term]:
    """The gradient of what the embedding gave, of which its weight's is made.

    It is gone before that of a tied weight is added to the head's, and before hooks or FSDP reduce
    it.
    """
    counts = plan.counts
    if plan.fsdp.version or is_hooked(plan) or plan.releases or counts.tied or not counts.embedding:
        return
    given = _given_back(workload, run)
    yield from of_samples(given, At.EMBEDDING, At.EMBEDDING, sequences_of(workload))
