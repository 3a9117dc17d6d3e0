"""How trainers count: the optimizer steps of a run, from what an epoch draws and how it is shared.

Trainers differ in what they do with the end of an epoch, so each target says how its own counts.
"""

import math
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.packing import PackingStrategy


class Epoch(Struct, frozen=True):
    """What one pass over the data draws, and how it is shared."""

    rows: int
    """Samples, packed rows, pairs or prompts: what the sampler draws from."""
    micro: int
    """Rows that a process takes at once; answers where the model writes them."""
    accumulation: int
    processes: int
    """Processes that the rows are dealt to."""
    sequence: int = 1
    """Processes that share each row."""
    answers: int = 0
    """Answers to each prompt; 0: rows are taken as they are."""

    @property
    def prompts_a_step(self) -> int:
        """Prompts whose answers fill one optimizer step; 0 where nothing is answered."""
        return self.micro * self.processes * self.accumulation // max(self.answers, 1)

    @property
    def micro_batches(self) -> int:
        """Micro batches that each process runs.

        accelerate 0.30.1 to 1.15.0 data_loader.py `BatchSamplerShard.__len__`: batches are dealt in
        turn, and with `even_batches` the last ones begin again. Where processes share a row, each
        of their micro batches is run by all: transformers 5.23.0 trainer.py
        `set_initial_training_values`.
        """
        dealt = self.processes * self.sequence
        batches = math.ceil(self.rows / self.micro)
        return math.ceil(batches / dealt) * self.sequence


class Counting(Struct, frozen=True):
    """How one trainer counts."""

    trainer: str
    """In words, with its release."""
    steps: Callable[[Epoch, float], int]
    """The optimizer steps of so many passes over the data."""
    packing: PackingStrategy = "bfd"
    """How it packs samples, where it packs them."""
    is_exact: bool = True
    """Whether nothing counts but what an `Epoch` says."""


def of_whole_and_partial(epoch: Epoch, epochs: float) -> int:
    """An incomplete accumulation at the end of an epoch makes a step of its own.

    transformers 4.52.4 to 5.23.0 trainer.py `set_initial_training_values`.
    """
    return math.ceil(epochs * _steps(epoch, math.ceil(epoch.micro_batches / epoch.accumulation)))


def of_whole(epoch: Epoch, epochs: float) -> int:
    """Accumulations that are complete count, and one at least.

    transformers 4.40.2 to 4.48.3 trainer.py `_inner_training_loop`, 4.49.0 to 4.51.3
    `set_initial_training_values`.
    """
    return math.ceil(epochs * _steps(epoch, epoch.micro_batches // epoch.accumulation))


def of_one_stream(epoch: Epoch, epochs: float) -> int:
    """So many passes are one stream, and only its end makes a partial batch."""
    rows = math.ceil(epochs * epoch.rows)
    return math.ceil(rows / (epoch.micro * epoch.processes * epoch.accumulation))


def of_accumulations(epoch: Epoch, epochs: float) -> int:
    """Micro batches of all passes, of which so many make a step."""
    if epoch.answers:
        return of_whole(epoch, epochs)
    return int(epochs * epoch.micro_batches) // epoch.accumulation


def _steps(epoch: Epoch, of_batches: int) -> int:
    """Where prompts are answered, a step takes whole ones, and those that fill none are left out.

    trl 0.16.1 to 1.16.0 trainer/grpo_trainer.py `_get_train_sampler`: `RepeatSampler` drops the
    last incomplete chunk of prompts, and each chunk is one accumulation.
    """
    if epoch.answers:
        return epoch.rows // max(epoch.prompts_a_step, 1)  # fewer answers than samples are refused
    return max(of_batches, 1)


TRAINER: Final = Counting("transformers' Trainer", of_whole_and_partial)
"""Where no target is asked: the newest release."""
