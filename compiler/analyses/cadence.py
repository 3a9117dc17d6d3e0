"""How often a run saves and evaluates by default: work at risk against disk and time."""

import math
from typing import Final

from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.terms.optimizer import MASTER_BYTES, MOMENTS
from tunec.compiler.ir.slots import Optimizer, States

AT_RISK_SECONDS: Final = 3600
"""Work that a failure may cost: an hour, a judgement. A save is an hour's small part even of the
largest models, and a preempted job starts again where it was an hour ago."""
_MOST_KEPT: Final = 20
"""Checkpoints of a run that keeps all of them."""
_EVALUATIONS: Final = (4, 10)
"""Evaluations of a run: enough for a curve, few enough beside the training."""


def saving_steps(seconds: float | None, steps: int | None, *, keeps_all: bool) -> int:
    """Steps between checkpoints: about an hour of work, in equal parts of the run.

    `seconds`: of a step; None: not known. `steps`: of the run; None: not known.
    """
    hour = max(1, round_down(AT_RISK_SECONDS / seconds)) if seconds else 500
    if steps is None:
        return hour
    parts = math.ceil(steps / hour)
    return parted(steps, min(parts, _MOST_KEPT) if keeps_all else parts)


def evaluation_steps(epochs: float | None, steps: int) -> int:
    """Steps between evaluations: once an epoch, but no fewer and no more than make a curve."""
    fewest, most = _EVALUATIONS
    times = math.ceil(epochs) if epochs else fewest
    while times < fewest:
        times *= 2
    return parted(steps, min(times, most))


def parted(steps: int, times: int) -> int:
    """Steps between events that come so many times over a run, the last of them at its end."""
    return math.ceil(steps / max(times, 1))


def round_down(number: float) -> int:
    """The largest whole number of two digits and zeros that is no larger."""
    whole = int(number)
    unit = int(10 ** max(len(str(whole)) - 2, 0))
    return whole // unit * unit


def checkpoint_bytes(
    trained: int, parameters: int, optimizer: Optimizer, states: States, *, adapted: bool
) -> float:
    """Bytes of one checkpoint: the adapters or the whole model, and the state of the optimizer.

    `trained` and `parameters` are numbers of parameters; a factored moment is as good as nothing.
    """
    weights = (trained if adapted else parameters) * BYTES[states.trainable]
    moments = MOMENTS.get(optimizer.name, 0) * BYTES[states.optimizer]
    masters = MASTER_BYTES if states.master_weights else 0
    return weights + trained * (moments + masters)
