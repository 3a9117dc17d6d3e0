"""What GRPO does before each step: answers, their log-probabilities, weights handed to vLLM."""

from collections.abc import Iterator
from math import prod
from typing import Final

from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.analyses.memory.fixed import Fixed
from tunec.compiler.analyses.memory.fsdp_units import units_of
from tunec.compiler.analyses.memory.generation import generating, prompting
from tunec.compiler.analyses.memory.inference import (
    EVERYTHING,
    EXPANDED,
    Whole,
    whole_of,
    written_phases,
)
from tunec.compiler.analyses.memory.merging import merged, packed_before
from tunec.compiler.analyses.memory.phase import NOTHING, Group, Phase, Terms, group, phase
from tunec.compiler.analyses.memory.samples import Samples
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.workload import Generation, Preference, Workload

_STAYS: Final = frozenset({"key-value cache", "gathered parameters"})
_COPIES: Final = 2
"""A DTensor made whole is gathered, and wrapped in a copy (torch 2.13 `_functional_collectives.py`,
`all_gather_tensor`; traced)."""


def rewarded(
    workload: Workload,
    plan: Sharding,
    samples: tuple[Samples, Samples],
    fixed: Fixed,
    share: int,
) -> Iterator[Phase]:
    """The moments before a step, where the model's own answers are rewarded.

    `samples`: in a step, and where answers are written. `share`: samples of the rank in one
    optimizer step.
    """
    asked, written = workload.preference, workload.generation
    scored, answering = samples
    whole = whole_of(plan, fixed, follows=asked is not None and asked.engine)
    if written is not None and written.sequences:
        yield from _written(workload, plan, answering, (fixed, whole), written, share)
    if asked is None or not asked.scored:
        return
    if asked.engine or asked.reference in ("resident", "base"):
        yield from _scored(scored, fixed, whole, asked)
    if asked.engine:
        yield phase("handing over", (fixed.always, group(_handed(workload, plan))))


def _written(
    workload: Workload,
    plan: Sharding,
    samples: Samples,
    there: tuple[Fixed, Whole],
    asked: Generation,
    share: int,
) -> Iterator[Phase]:
    """All answers of a step, with what `ds3_gather_for_generation` makes whole at once."""
    fixed, whole = there
    of_layer = samples.forward.total + samples.adapting.total
    weight = max(samples.head_copy.total, plan.counts.expanded * EXPANDED)
    told = (
        prompting(workload, plan, asked, of_layer, share),
        _at_once(generating(workload, plan, asked, share), weight),
    )
    held = (fixed.always, samples.evaluation_copies)
    if asked.gathers and plan.deepspeed:
        whole = EVERYTHING
    elif plan.fsdp.version == 1:
        whole = _summoned(workload, plan, whole)

    def put(name: str, alone: tuple[Group, ...], answers: Group) -> Phase:
        return phase(name, (*alone, answers))

    yield from written_phases(("prompt", "generation"), whole, held, told, put)


def _at_once(written: Terms, weight: float) -> Terms:
    """What a token holds, or a weight that is copied or expanded for its product, if that is more.

    Layers and the head come one after the other, so that one of them is there with the cache.
    """
    steps = {name: size for name, size in written.items() if name not in _STAYS}
    if weight <= sum(steps.values()):
        return written
    kept = {name: size for name, size in written.items() if name in _STAYS}
    return {**kept, "weight casts": weight}


def _summoned(workload: Workload, plan: Sharding, whole: Whole) -> Whole:
    """FSDP 1's root unit as it is stored, with what autocast makes of its output projection.

    trl 0.15.2 to 1.16.0 `grpo_trainer.py`: `summon_full_params(recurse=False)`.
    """
    units, narrow = units_of(workload, plan.fsdp, plan.states), BYTES[workload.precision.compute]
    wide = units.root.size * (plan.parameter / narrow - 1) if units.root.trained else 0.0
    added = {"full parameters": max(wide, 0.0)} if plan.states.autocast else {}
    cast = {"weight casts": float(narrow * plan.counts.output)} if added else {}
    return whole._replace(
        layers=group(whole.layers.terms, added), end=group(whole.end.terms, added, cast)
    )


def _scored(samples: Samples, fixed: Fixed, whole: Whole, asked: Preference) -> Iterator[Phase]:
    """Passes that keep nothing, a micro batch at a time, over all that was written.

    By the reference where there is one, and by the model itself where vLLM wrote (trl 0.27.2 to
    1.16.0 `trainer/grpo_trainer.py`, `_generate_and_score_completions`:
    `vllm_importance_sampling_correction`). Otherwise a step's own pass gives what the answers were
    written by: `steps_per_generation` is the accumulation unless it is set.
    """
    # autocast keeps copies of what can be trained alone
    held = (fixed.always, samples.evaluation_copies if asked.engine else NOTHING)
    adapting = samples.adapting if asked.engine else NOTHING
    yield phase("scoring", (*held, whole.end, samples.loss_buffers), (samples.in_scoring,))
    yield phase("scoring layers", (*held, whole.layers), (samples.forward, adapting))
    for each in (whole.gathering, whole.begins):
        if each.total:
            yield phase("scoring gathering", (*held, each), (samples.embedded,))


def _handed(workload: Workload, plan: Sharding) -> Terms:
    """Parameters that are made whole to be handed to vLLM, and adapters merged into them.

    One at a time, but with adapters and ZeRO stage 3 all at once (trl 0.27.2 to 1.16.0
    `generation/vllm_generation.py`, `_iter_named_params`, before it `_move_model_to_vllm`). The
    list of them that is made whole keeps packed weights, which others replace.
    """
    sharded = plan.stage == PARAMETERS
    size = plan.parameter if plan.counts.trained else BYTES[plan.states.weights]
    if workload.adapted and not plan.fsdp.version:
        whole = size * (plan.counts.base + plan.counts.adapters) * sharded
        return {
            "gathered parameters": float(whole),
            "weights as they were": packed_before(workload),
            **merged(workload, plan, repeated=True),
        }
    largest = max((prod(m.shape) for m in workload.architecture.modules), default=0)
    copies = _COPIES if plan.fsdp.version == 2 else 1
    return {"gathered parameters": float(copies * size * largest)} if sharded else {}
