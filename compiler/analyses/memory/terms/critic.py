"""PPO's critic: a second model that is trained on the same devices, in turns with the first one.

verl 0.8.0 trainer/ppo/ray_trainer.py `fit`, 0.9.0 to 0.9.1 trainer/ppo/v1/trainer_base.py
`_step_once`: values are computed, the critic is updated, then the actor. Both have one pool of
devices (`init_resource_pool_mgr`). A turn ends without gradients (workers/engine/fsdp/
transformer_impl.py `EngineTrainModeCtx.__exit__`: `optimizer_zero_grad`), so that weights and
optimizer states are what a model has while the other one trains.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from tunec.compiler.analyses.memory.timeline import At, Moment, Term
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.schemas.frozen import replace

PREFIX: Final = "critic "
"""What names of the critic's terms begin with, in memory and in time."""
_FIRST, _LAST = 21.0, 29.0
"""The critic's turn: between the passes that score the answers and the actor's own."""


def of_critic(workload: Workload, layout: Layout) -> tuple[Workload, Layout] | None:
    """The critic as a run of its own; None if there is none. It is laid out like the actor."""
    critic = workload.critic
    if critic is None:
        return None
    return critic.workload, replace(layout, states=critic.states or layout.states)


def in_turns(actor: Iterable[Term], critic: Iterable[Term], *, waits: bool) -> Iterator[Term]:
    """The terms of both models; `waits`: whether each is on the host unless it is its turn."""
    for term in actor:
        stays = term.freed == At.END and term.born == At.WRITTEN
        yield from _parted(term) if waits and stays else (term,)
    for term in critic:
        if term.freed == At.END and term.born.at <= At.PROMPT.at:
            born, freed = (_turn(At.START), _turn(At.STEP)) if waits else (At.START, At.END)
            yield term._replace(name=PREFIX + term.name, born=born, freed=freed)
        elif At.PROMPT.at <= term.born.at <= At.STEP.at:
            freed = min(term.freed, At.STEP, key=lambda moment: moment.at)
            born, freed = _turn(term.born), _turn(freed)
            yield term._replace(name=PREFIX + term.name, born=born, freed=freed)


def _parted(term: Term) -> Iterator[Term]:
    """A term of the actor that is on the host while the critic has its turn."""
    yield term._replace(freed=At.HANDING_OVER)
    yield term._replace(born=At.FORWARD)


def _turn(moment: Moment) -> Moment:
    """A moment of the critic's own step, within its turn."""
    share = (moment.at - At.START.at) / (At.STEP.at - At.START.at)
    name = PREFIX + moment.name if moment.name else ""
    return moment._replace(at=_FIRST + share * (_LAST - _FIRST), name=name)
