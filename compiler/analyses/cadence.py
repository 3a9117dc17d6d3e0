"""How often a run saves and evaluates by default, weighing work at risk against disk and time."""

import math
from typing import Final

from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.terms.optimizer import MASTER_BYTES, MOMENTS
from tunec.compiler.ir.slots import Optimizer, States

AT_RISK_SECONDS: Final = 3600
"""Seconds of work that a failure may cost: an hour, a judgement. A save takes a small part of an
hour even for the largest models, and a preempted job restarts where it was an hour ago."""
_MOST_KEPT: Final = 20
"""The most checkpoints of a run that keeps all of them."""
_EVALUATIONS: Final = (4, 10)
"""The fewest and the most evaluations of a run: enough for a curve, but little time beside
training."""


def saving_steps(seconds: float | None, steps: int | None, *, keeps_all: bool) -> int:
    """Steps between checkpoints: about an hour of work, in equal parts of the run.

    `seconds`: of a step; None if unknown. `steps`: of the run; None if unknown.
    """
    hour = max(1, round_down(AT_RISK_SECONDS / seconds)) if seconds else 500
    if steps is None:
        return hour
    parts = math.ceil(steps / hour)
    return steps_between(steps, min(parts, _MOST_KEPT) if keeps_all else parts)


def evaluation_steps(epochs: float | None, steps: int) -> int:
    """Steps between evaluations: once an epoch, within the fewest and most of `_EVALUATIONS`."""
    fewest, most = _EVALUATIONS
    times = math.ceil(epochs) if epochs else fewest
    while times < fewest:
        times *= 2
    return steps_between(steps, min(times, most))


def steps_between(steps: int, times: int) -> int:
    """Steps between `times` evenly spread events of a run, the last of them at its end."""
    return math.ceil(steps / max(times, 1))


def round_down(number: float) -> int:
    """A number rounded down to a whole number with two significant digits."""
    whole = int(number)
    unit = int(10 ** max(len(str(whole)) - 2, 0))
    return whole // unit * unit


def checkpoint_bytes(
    trained: int, parameters: int, optimizer: Optimizer, states: States, *, adapted: bool
) -> float:
    """Bytes of one checkpoint: the adapters or the whole model, and the optimizer's state.

    `trained` and `parameters` are numbers of parameters; factored moments are negligible.
    """
    weights = (trained if adapted else parameters) * BYTES[states.trainable]
    moments = MOMENTS.get(optimizer.name, 0) * BYTES[states.optimizer]
    masters = MASTER_BYTES if states.master_weights else 0
    return weights + trained * (moments + masters)
