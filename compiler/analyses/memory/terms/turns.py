"""An engine that generates answers on the training's devices: beside the training or in turns.

verl 0.8.0 to 0.9.1 workers/engine_workers.py `update_weights`: the engine's weights come back, the
training's weights are handed over and, with `param_offload`, moved to the host, and then the
engine's cache comes back. trl 0.27.2 to 1.16.0 `generation/vllm_generation.py`, before it
trainer/grpo_trainer.py: `vllm_enable_sleep_mode`.
"""

from collections.abc import Iterator

from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.terms.optimizer import optimizer_states
from tunec.compiler.analyses.memory.terms.weights import weights
from tunec.compiler.analyses.memory.timeline import At, Moment, Sizes, Term, lasting
from tunec.compiler.analyses.memory.workload import InTurns, Workload

_ENGINE = "generation engine"


def copied_adapters(workload: Workload, plan: Sharding) -> Sizes:
    """The reference if adapters exist before the trainer is created: a copy of the adapters.

    axolotl 0.13.2 to 0.19.0 loaders/model.py `_load_adapters`; trl 0.27.0 to 1.9.0
    trainer/grpo_trainer.py `add_adapter("ref", ...)`: the copy is frozen, and not cast.
    """
    asked = workload.preference
    is_own = asked is not None and asked.reference == "base" and asked.sequences == 1
    if not is_own or workload.version("axolotl") is None:
        return {}
    made = "fp32" if plan.counts.quantized else plan.states.trainable
    return {"reference adapters": plan.shard(BYTES[made] * plan.counts.trainable, PARAMETERS)}


def engine_terms(workload: Workload, plan: Sharding) -> Iterator[Term]:
    """Bytes of the engine: from the first step to the last or, if it sleeps, while it is awake."""
    taken = float(workload.generation_engine_bytes)
    if not taken:
        return
    asked = workload.preference
    if not (isinstance(asked, InTurns) and asked.sleeps):
        yield from lasting({_ENGINE: taken}, At.START, At.END)
        return
    whole = float(BYTES[workload.precision.compute] * plan.counts.base)
    yield from lasting({_ENGINE: taken}, At.GENERATION, At.GENERATION)
    yield from lasting({_ENGINE: min(taken, whole)}, At.HANDING_OVER, At.HANDING_OVER)


def is_away(workload: Workload) -> bool:
    """Whether weights and optimizer states are on the host while answers are generated."""
    return isinstance(workload.preference, InTurns) and workload.preference.training_waits


def first_held(workload: Workload) -> Moment:
    """The moment in a step from which a device holds weights and optimizer states."""
    return At.WRITTEN if is_away(workload) else At.START


def waiting(workload: Workload, plan: Sharding, ranks: int) -> Sizes:
    """Host memory of weights and optimizer states during generation, for a number of ranks."""
    return put_aside(workload, plan, ranks) if is_away(workload) else {}


def put_aside(workload: Workload, plan: Sharding, ranks: int) -> Sizes:
    """Host memory of weights and optimizer states that are not on the devices."""
    found = (weights(workload, plan), optimizer_states(workload, plan))
    return {"training that waits": ranks * sum(sum(each.values()) for each in found)}
