"""What a plan's sharding holds on a device, whatever the samples: weights, gradients, states."""

from collections.abc import Iterator
from typing import NamedTuple

from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.counts import visited_layers
from tunec.compiler.analyses.memory.fsdp import fsdp_terms, reduced
from tunec.compiler.analyses.memory.fsdp_run import run_of
from tunec.compiler.analyses.memory.gradients import gradient_terms, head_stepped
from tunec.compiler.analyses.memory.lora import norms_working, weights_kept
from tunec.compiler.analyses.memory.merging import merged
from tunec.compiler.analyses.memory.moments import At, reduction
from tunec.compiler.analyses.memory.saving import saved
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding, resident
from tunec.compiler.analyses.memory.step import at_orthogonalisation, optimizer_step
from tunec.compiler.analyses.memory.terms.passes import main_part
from tunec.compiler.analyses.memory.timeline import Moment, Sizes, Term, lasting
from tunec.compiler.analyses.memory.weights import (
    encoders,
    gathered,
    gathered_at,
    gathered_last,
    gathered_layer,
    gathered_together,
    loaded_whole,
    second_shards,
    weights,
)
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.caches import cached


@cached(4096)
def of_plan(
    workload: Workload, plan: Sharding, *, checkpointed: bool, segment: int
) -> tuple[Term, ...]:
    """The terms of a plan; `segment`: layers that are recomputed together."""
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
    """Weights and training state that never leave: the least that any phase holds."""
    sizes = (weights(workload, plan), resident(workload, plan))
    return tuple(term for each in sizes for term in lasting(each, At.START, At.END) if term.bytes)


def _zero(
    workload: Workload, plan: Sharding, segment: int, *, checkpointed: bool, dora: bool
) -> Iterator[Term]:
    """Gradients, the step, and the parameters that ZeRO stage 3 makes whole."""
    yield from gradient_terms(plan, segment, dora=dora)
    if plan.stage == PARAMETERS:
        yield from _gathered(workload, plan, checkpointed=checkpointed)
    second = 0.0 if plan.parameters_away else second_shards(plan)
    yield from lasting({"second shards": second}, At.STEP, At.STEP)
    yield from lasting(optimizer_step(workload, plan), At.STEP, At.STEP)
    if plan.halves is not None and 0 < plan.stage < PARAMETERS:
        updates = at_orthogonalisation(plan, plan.halves)
        yield from lasting(updates, At.ORTHOGONALISATION, At.ORTHOGONALISATION)


def _gathered(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Iterator[Term]:
    """Parameters that ZeRO stage 3 has whole from moment to moment."""
    layers = visited_layers(workload)
    turning = gathered(plan, checkpointed=checkpointed)
    yield from lasting(turning, At.FORWARD, At.VISION_FORWARD)
    yield from lasting(turning, At.LOSS_FORWARD, At.NORMS)
    yield from lasting(turning, At.EVALUATION, At.EVALUATION)
    share, together = gathered_together(plan, checkpointed=checkpointed)
    gathering = At.GATHERING._replace(layers=share)
    yield from lasting(together, gathering, gathering)
    last = gathered_last(plan, layers, checkpointed=checkpointed)
    yield from lasting(last, At.LAST_LAYER, At.LAST_EXPERTS)
    for one in plan.reductions:
        whole = gathered_at(plan, layers, one.left, checkpointed=checkpointed)
        moment = reduction(one.number, one.left)
        yield from lasting(whole, moment, moment)
    ending = gathered_layer(plan, layers, checkpointed=checkpointed)
    yield from lasting(ending, At.ALL_REDUCED, At.REDUCTION)


def _norms(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Iterator[Term]:
    """What DoRA makes its norms in, and the weights that it keeps a cast of."""
    widths = arithmetic(workload, plan.states, main_part(workload))
    kept = weights_kept(workload, widths, checkpointed=checkpointed)
    norms = {"norms of weights": norms_working(workload, widths), "casts for norms": kept}
    yield from lasting(norms, At.NORMS, At.NORMS)


def _beside_training(workload: Workload, plan: Sharding) -> Iterator[Term]:
    """Before the first step and after the last: encoding, loading, checkpoints, merging."""
    if plan.counts.components:
        yield from lasting(encoders(plan), At.ENCODING, At.ENCODING)
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
    """Reductions inside of layers."""
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
