"""How trainers count the optimizer steps of a run, from the rows of an epoch and their sharing.

Trainers treat the end of an epoch differently, so each target describes how its trainer counts.
"""

import math
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.packing import PackingStrategy
from tunec.schemas.terms import ObjectiveKind


class Epoch(Struct, frozen=True):
    """The rows of one pass over the data, and how they are shared."""

    rows: int
    """What the sampler draws from: samples, packed rows, pairs or prompts."""
    micro: int
    """Rows that a process takes at once; answers if the model generates them."""
    accumulation: int
    processes: int
    """Processes among which the rows are divided."""
    sequence: int = 1
    """Processes that share each row."""
    answers: int = 0
    """Answers to each prompt; 0 if no answers are generated."""

    @property
    def prompts_a_step(self) -> int:
        """Prompts whose answers fill one optimizer step; the step's rows if none are answered."""
        return self.micro * self.processes * self.accumulation // max(self.answers, 1)

    @property
    def micro_batches(self) -> int:
        """Micro batches that each process runs.

        accelerate 0.30.1 to 1.15.0 data_loader.py `BatchSamplerShard.__len__`: batches are dealt in
        turn, and with `even_batches` the last ones begin again. If processes share a row, each of
        their micro batches is run by all of them: transformers 5.23.0 trainer.py
        `set_initial_training_values`.
        """
        dealt = self.processes * self.sequence
        batches = math.ceil(self.rows / self.micro)
        return math.ceil(batches / dealt) * self.sequence


def rise_rounded_up(steps: int, share: float, _: ObjectiveKind) -> int:
    """The steps of a warm-up: transformers 4.40.2 to 5.23.0 training_args.py `get_warmup_steps`."""
    return math.ceil(steps * share)


class Counting(Struct, frozen=True):
    """How one trainer counts."""

    trainer: str
    """The trainer's name and release, as text for users."""
    steps: Callable[[Epoch, float], int]
    """The optimizer steps of a number of passes over the data."""
    packing: PackingStrategy = "bfd"
    """How the trainer packs samples, if it does."""
    is_exact: bool = True
    """Whether the count depends only on the values of an `Epoch`."""
    rise: Callable[[int, float, ObjectiveKind], int] = rise_rounded_up
    """The steps of a warm-up over a share of all steps."""
    leaves_out: tuple[ObjectiveKind, ...] = ()
    """The objectives for which it leaves a sample out that is too long, instead of cutting it."""
    leaves_out_unanswered: tuple[ObjectiveKind, ...] = ()
    """The objectives for which it leaves a sample out that has no answer before the cut, where
    answers alone bear the loss."""


def count_whole_and_partial(epoch: Epoch, epochs: float) -> int:
    """Steps if an incomplete accumulation at the end of an epoch is a step too.

    transformers 4.52.4 to 5.23.0 trainer.py `set_initial_training_values`.
    """
    return math.ceil(epochs * _steps(epoch, math.ceil(epoch.micro_batches / epoch.accumulation)))


def count_whole(epoch: Epoch, epochs: float) -> int:
    """Steps if only complete accumulations count, but at least one.

    transformers 4.40.2 to 4.48.3 trainer.py `_inner_training_loop`, 4.49.0 to 4.51.3
    `set_initial_training_values`.
    """
    return math.ceil(epochs * _steps(epoch, epoch.micro_batches // epoch.accumulation))


def count_one_stream(epoch: Epoch, epochs: float) -> int:
    """Steps if all passes are one stream, and only its end makes a partial batch."""
    rows = math.ceil(epochs * epoch.rows)
    return math.ceil(rows / (epoch.micro * epoch.processes * epoch.accumulation))


def count_accumulations(epoch: Epoch, epochs: float) -> int:
    """Steps if the micro batches of all passes are divided into accumulations."""
    if epoch.answers:
        return count_whole(epoch, epochs)
    return int(epochs * epoch.micro_batches) // epoch.accumulation


def _steps(epoch: Epoch, of_batches: int) -> int:
    """Steps of a pass; if prompts are answered, prompts that do not fill a step are left out.

    trl 0.16.1 to 1.16.0 trainer/grpo_trainer.py `_get_train_sampler`: `RepeatSampler` drops the
    last incomplete chunk of prompts, and each chunk is one accumulation.
    """
    if epoch.answers:
        return epoch.rows // max(epoch.prompts_a_step, 1)  # fewer answers than samples are refused
    return max(of_batches, 1)


TRAINER: Final = Counting("transformers' Trainer", count_whole_and_partial)
"""The default if no target is given: the newest release."""
