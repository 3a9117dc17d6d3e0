"""What a layout holds on the device at each moment of a step, whatever the micro batch."""

from typing import NamedTuple

from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.counts import main_layers, visited_layers
from tunec.compiler.analyses.memory.fsdp import held
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
from tunec.compiler.analyses.memory.lora import norms_working, weights_kept
from tunec.compiler.analyses.memory.phase import NOTHING, Group, Terms, group
from tunec.compiler.analyses.memory.reductions import Reduction
from tunec.compiler.analyses.memory.samples import main_part
from tunec.compiler.analyses.memory.sharding import Sharding, resident
from tunec.compiler.analyses.memory.step import optimizer_step
from tunec.compiler.analyses.memory.weights import (
    gathered,
    gathered_at,
    gathered_last,
    gathered_layer,
    gathered_together,
    second_shards,
    weights,
)
from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.caches import cached
from tunec.compiler.ir.slots import States


class Fixed(NamedTuple):
    """What a layout holds on the device at each moment, whatever the micro batch."""

    always: Group
    """Weights and training state that never leave."""
    turning: Group
    """Parameters that ZeRO stage 3 has made whole where forward turns to backward."""
    ending: Group
    """Parameters that ZeRO stage 3 has made whole near the end of the backward pass."""
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
    begins: Group = NOTHING
    """What is held when a pass under FSDP copies the first layer out of its buffer."""
    in_layer: Group = NOTHING
    """What FSDP has whole in the last layer of a pass that keeps nothing."""
    again: Group = NOTHING
    """What is held while FSDP gathers the root unit anew for the backward pass."""


def always_held(workload: Workload, plan: Sharding) -> Group:
    """Weights and training state that never leave: the least that any phase holds."""
    return group(weights(workload, plan), resident(workload, plan))


@cached(4096)
def fixed_of(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Fixed:
    """What a layout holds at each moment, whatever the micro batch."""
    layers = visited_layers(workload)
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


def fixed_of_fsdp(workload: Workload, plan: Sharding, *, checkpointed: bool) -> Fixed:
    """What a layout under FSDP holds: its units are whole at other moments than under ZeRO."""
    at = held(workload, plan)
    dora = workload.adapter.dora and bool(workload.adapted)
    # gradients of experts are whole only when what the experts kept is gone
    whole = not plan.counts.experts
    first = group(at.at_first_layer)
    moments = [
        *((left, terms, False) for left, terms in at.reductions),
        *((left + checkpointed / main_layers(workload), terms, True) for left, terms in at.begun),
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
            (Reduction(number, 0, 0, 0, 0, left, inside, whole, False), group(terms), NOTHING)
            for number, (left, terms, inside) in enumerate(moments, 1)
        ),
        in_step=group(at.in_step),
        norms=group(_norms(workload, plan.states, checkpointed=checkpointed)) if dora else NOTHING,
        gathering=(at.gathering[0], group(at.gathering[1])),
        begins=group(at.begins) if at.begins else NOTHING,
        in_layer=group(at.in_layer) if at.in_layer else NOTHING,
        again=group(at.again),
        evaluating=group({n: s for n, s in at.forward.items() if n != "accumulated gradients"}),
    )


def _norms(workload: Workload, states: States, *, checkpointed: bool) -> Terms:
    widths = arithmetic(workload, states, main_part(workload))
    kept = weights_kept(workload, widths, checkpointed=checkpointed)
    return {"norms of weights": norms_working(workload, widths), "casts for norms": kept}
