"""How long a whole run takes: its steps, and what comes before, between and after them."""

from typing import Final

from msgspec import Struct

MARGIN: Final = 0.5
"""Of a step's account, which is off by tens of percent between devices (`account.step_time`), and
for evaluation, whose amount of data nobody gives: a judgement."""
START_SECONDS: Final = 900.0
"""Until the first step: containers, imports, tokenising, compiling of kernels: a judgement."""
STORAGE: Final = 0.5e9
"""Bytes a second to and from shared storage: less than half of 10 Gigabit Ethernet, a judgement."""
_SAVED: Final = 16
"""Bytes of a checkpoint for each trained parameter at most: weights, a master copy, two moments."""


class Run(Struct, frozen=True):
    """What a run does besides one step."""

    steps: int
    step_seconds: float
    saves: int
    trained: int
    """Parameters with gradients."""
    weights: int
    """Bytes of the model's weights, read at the start."""

    @property
    def seconds(self) -> float:
        """Seconds from the start of the job to its end, without a margin."""
        loading = START_SECONDS + self.weights / STORAGE
        return loading + self.steps * self.step_seconds + self.saving

    @property
    def saving(self) -> float:
        """Seconds of writing checkpoints, the last one among them."""
        return (self.saves + 1) * _SAVED * self.trained / STORAGE


def bounded(run: Run) -> int:
    """Seconds that are asked for: with the margin, up to whole minutes."""
    return -round(-run.seconds * (1 + MARGIN) // 60) * 60
