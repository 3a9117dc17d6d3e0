"""Passes that keep nothing for a backward pass: what is whole in them, and answers they write."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.activations import Pass
from tunec.compiler.analyses.memory.fixed import Fixed
from tunec.compiler.analyses.memory.phase import NOTHING, Group, Phase, Terms, group
from tunec.compiler.analyses.memory.samples import Samples, samples_of
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.weights import fetched
from tunec.compiler.analyses.memory.workload import Workload

EXPANDED: Final = 2
"""Bytes of an element of a quantised weight while it is multiplied with (bitsandbytes 0.50.2
`functional.py`, `dequantize_4bit`: 16 bit)."""

_WAITS: Final = "accumulated gradients"
"""None do between two steps."""

Put = Callable[[str, tuple[Group, ...], Group], Phase]
"""Makes a phase of a name, of what does not depend on the answers, and of what they hold."""


class Whole(NamedTuple):
    """What sharding makes whole at each moment of such a pass."""

    layers: Group
    end: Group
    gathering: Group
    """While a layer is copied out of the buffer that it came in."""
    begins: Group
    """While the first layer is copied out of its buffer, where an embedding came before it."""


EVERYTHING: Final = Whole(NOTHING, NOTHING, NOTHING, NOTHING)
"""Nothing comes: it is all there."""


def whole_of(plan: Sharding, fixed: Fixed, *, follows: bool = False) -> Whole:
    """What such a pass makes whole under a layout.

    `follows`: whether it comes right after a step, so that stage 3 knows the order of the modules
    and fetches ahead; another order, or hooks set anew, makes it forget (deepspeed 0.19.8
    `runtime/zero/partitioned_param_coordinator.py`, `_invalidate_trace`; trl 1.16
    `models/utils.py`, `add_hooks`).
    """
    if plan.fsdp.version == 2:
        moving = (_between_steps(each) for each in (fixed.gathering[1], fixed.begins))
        return Whole(fixed.in_layer, fixed.evaluating, *moving)
    if plan.fsdp.version:
        return EVERYTHING._replace(layers=fixed.in_layer, end=fixed.evaluating)
    if plan.stage < PARAMETERS:
        return EVERYTHING
    coming = group(fixed.turning.terms, fetched(plan)) if follows else fixed.turning
    return EVERYTHING._replace(layers=coming, end=fixed.turning)


def _between_steps(held: Group) -> Group:
    return group({name: size for name, size in held.terms.items() if name != _WAITS})


def casting_nothing(workload: Workload, run: Pass, samples: Samples) -> Samples:
    """What a sample adds where `generate` runs: no autocast reaches the model that PEFT wraps.

    accelerate 1.15 `accelerator.py`, `prepare_model`, casts in the forward pass of what it is
    given, PEFT's model, which peft 0.21 `peft_model.py`, `generate`, passes by.
    """
    if not (workload.adapted and run.states.autocast):
        return samples
    return samples_of(workload, replace(run, states=replace(run.states, autocast=False)))


def written_phases(
    names: tuple[str, str],
    whole: Whole,
    held: tuple[Group, ...],
    told: tuple[Terms, Terms],
    put: Put,
) -> Iterator[Phase]:
    """The prompts being read, and the last token being written, with what is gathered for them.

    `names`: of both; `held`: what is there besides; `told`: what the answers hold at both.
    """
    reading, writing = names
    read, written = map(group, told)
    yield put(reading, (*held, whole.layers), read)
    yield put(writing, (*held, whole.layers), written)
    if whole.end.total > whole.layers.total:
        yield put(f"{reading} head", (*held, whole.end), group(_cached(told[0])))
        yield put(f"{writing} head", (*held, whole.end), written)
    if whole.gathering.total:
        yield put(f"{writing} gathering", (*held, whole.gathering), group(_cached(told[1])))
    if whole.begins.total:
        yield put(f"{reading} gathering", (*held, whole.begins), NOTHING)


def _cached(held: Terms) -> Terms:
    return {name: size for name, size in held.items() if name == "key-value cache"}
