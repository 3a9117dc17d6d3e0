"""What llama-cookbook said and left behind: it has a loop of its own, and a bar for each epoch."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.road.bundle_run import Journey
from tests.road.seen import adapted, loaded

_BAR: Final = r"Training Epoch: (\d+)/\d+, step (\d+)/(\d+) completed [^\r\n]*?(\d+)(?:/\d+|it) \["
"""Epoch, micro batch, micro batches of the epoch, steps of the optimizer until then."""


@dataclass(frozen=True, slots=True)
class CookbookSeen:
    """What `llama_cookbook.finetuning` ran with."""

    rows: int
    """Samples, or the rows that they were joined to."""
    batches: tuple[int, ...]
    """Micro batches of each epoch."""
    updates: tuple[int, ...]
    """Steps of the optimizer in each epoch."""
    trained: int
    """Micro batches of all epochs that the loss is told of."""
    loaded: tuple[Path, ...]
    adapted: frozenset[str]


def seen_of_cookbook(journey: Journey) -> CookbookSeen:
    """Read the log and the output folder of a run.

    llama-cookbook 0.0.5.post1 finetuning.py `main`, utils/train_utils.py `train`.
    """
    told = [tuple(map(int, bar)) for bar in re.findall(_BAR, journey.log)]
    epochs = {epoch: (batches, updates) for epoch, _, batches, updates in told}
    (rows,) = re.findall(r"length of dataset_train (\d+)", journey.log)
    return CookbookSeen(
        rows=int(rows),
        batches=tuple(batches for _, (batches, _) in sorted(epochs.items())),
        updates=tuple(updates for _, (_, updates) in sorted(epochs.items())),
        trained=len({(epoch, step) for epoch, step, _, _ in told}),
        loaded=loaded(journey),
        adapted=adapted(journey.output),
    )
