"""The slots of the training loop: how long it lasts, and what surrounds it."""

from tunec.compiler.ir.slot import slot as _slot
from tunec.schemas.frozen import dataclass
from tunec.schemas.terms import ScheduleKind


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long training lasts and how the learning rate moves."""

    kind: ScheduleKind = _slot("shape of the learning rate over time")
    arguments: tuple[tuple[str, int | float | str], ...] = _slot(
        "further arguments of the shape, by transformers' names"
    )
    epochs: float | None = _slot(
        "passes over the data; none: the length is given in steps", "epochs"
    )
    steps: int | None = _slot(
        "optimizer steps, given or counted as the trainer does; none: not known exactly", "steps"
    )
    estimated_steps: int | None = _slot(
        "estimated optimizer steps; none: the exact number is known, or no estimate is possible",
        "steps",
    )
    warmup_share: float | None = _slot(
        "share of all steps in which the learning rate rises; none: given in steps"
    )
    warmup_steps: int | None = _slot(
        "steps of rising learning rate; none: a share of an unknown number", "steps"
    )
    log_steps: int = _slot("steps between log lines", "steps")
    save_steps: int | None = _slot("steps between checkpoints; none: after each epoch", "steps")
    keep_checkpoints: int | None = _slot("checkpoints kept; none: all")
    evaluation_steps: int | None = _slot("steps between evaluations; none: never", "steps")


@dataclass(frozen=True, slots=True)
class Runtime:
    """What surrounds the training loop."""

    seed: int = _slot("seed of data order and initialisation")
    output: str = _slot("directory for checkpoints and logs")
    dataloader_workers: int = _slot("data loading processes of each rank", "processes")
    dataloader_pin_memory: bool = _slot("whether batches are page-locked before the copy")
    report_to: tuple[str, ...] = _slot("trackers; empty: none")
    neftune_alpha: float | None = _slot(
        "noise added to the embeddings in training (arXiv 2310.05914), before it is scaled by "
        "1/sqrt(tokens x width); none: no noise"
    )
    extra: tuple[str, ...] = _slot(
        "keys of targets that no other slot covers, such as `trl.dataset_num_proc=8`"
    )
