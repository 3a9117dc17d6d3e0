"""All terms of a run: those of its passes, those of its plan, and those that both decide."""

from collections.abc import Iterator

from tunec.compiler.analyses.memory.activations import Pass
from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.gradients import at_decoder_embedding, experts_moment
from tunec.compiler.analyses.memory.moments import At
from tunec.compiler.analyses.memory.sharding import Sharding, is_hooked
from tunec.compiler.analyses.memory.terms.answers import answer_terms
from tunec.compiler.analyses.memory.terms.passes import (
    activations,
    left_copies,
    losing,
    of_pass,
    sequences_of,
)
from tunec.compiler.analyses.memory.terms.plans import of_plan, under_way
from tunec.compiler.analyses.memory.timeline import (
    Phase,
    Term,
    lasting,
    of_samples,
    timeline,
    total,
)
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.caches import cached


@cached(8192)
def phases(workload: Workload, plan: Sharding, run: Pass, share: int) -> tuple[Phase, ...]:
    """All phases of a training step, of evaluation, and of what comes before and after.

    `share`: samples of one device in one optimizer step, where generation goes by them.
    """
    checkpointed, segment = run.checkpointed, run.segment
    return timeline(
        (
            *of_plan(workload, plan, checkpointed=checkpointed, segment=segment),
            *of_pass(workload, run),
            *_at_head(workload, plan, run),
            *_in_layers(workload, plan, run),
            *_at_decoder(workload, plan, run),
            *answer_terms(workload, plan, run, share),
        )
    )


def _at_head(workload: Workload, plan: Sharding, run: Pass) -> Iterator[Term]:
    """The gradient of the output projection as it is made, the logits' own still there.

    Only where it can be higher than the loss: of logits of so many tokens three tensors in fp32 are
    gone by then. That of earlier micro batches is beside it. Where autocast copied the weight, a
    gradient in the copy's dtype has come in its place, and the logits' is gone, when it is widened.
    """
    counts, model = plan.counts, workload.architecture
    head = counts.embedding if counts.tied else counts.head
    if not head or workload.loss != "full":
        return
    widths, tokens = arithmetic(workload, run.states, "text"), losing(workload, run).tokens
    width = widths.compute
    made = width + widths.casts * plan.parameter
    if made * model.hidden <= (12 - width) * tokens or plan.fsdp.version or is_hooked(plan):
        return
    beside = {"largest gradient": float(plan.parameter * plan.accumulates * head)}
    logits = {"logits and loss": tokens * width * model.vocab * (not widths.casts)}
    yield from lasting(beside, At.HEAD, At.HEAD)
    yield from of_samples(logits, At.HEAD, At.HEAD)


def _in_layers(workload: Workload, plan: Sharding, run: Pass) -> Iterator[Term]:
    """The layer that is differentiated while gradients are reduced, or when its experts are done.

    Of a block of experts that stage 3 gathers as one, the last layer's; of others the first's,
    where most gradients are there.
    """
    passed, number = activations(workload, run), sequences_of(workload)
    whole = passed.begun or passed.last_layer
    half = passed.half or whole
    for one in under_way(workload, plan, checkpointed=run.checkpointed):
        layer = whole if one.is_whole else half
        yield from of_samples(layer, one.moment, one.moment, number)
    if plan.counts.experts:
        moment, layer = experts_moment(plan), half if plan.leaf else passed.one_layer
        yield from of_samples(layer, moment, moment, number)


def _at_decoder(workload: Workload, plan: Sharding, run: Pass) -> Iterator[Term]:
    """The decoder's end of an embedding that both halves share, before the encoder's layers."""
    encoder = activations(workload, run).encoder
    if not plan.counts.tied or not total(encoder):
        return
    at = At.DECODER_EMBEDDING
    of_encoder = plan.counts.encoder / max(plan.counts.trainable, 1)
    copies = {name: round(size) * of_encoder for name, size in left_copies(workload, run).items()}
    yield from of_samples(encoder, at, at, sequences_of(workload))
    yield from lasting(copies, at, at)
    if not plan.fsdp.version:
        yield from lasting(at_decoder_embedding(plan), at, at)
