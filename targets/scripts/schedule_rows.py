"""Rows of lint about schedules of torch, which sd-scripts and musubi-tuner make by name."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rows import Row

_REQUIRED: Final = (
    ("CosineAnnealingLR", "T_max"),
    ("CosineAnnealingWarmRestarts", "T_0"),
    ("StepLR", "step_size"),
    ("MultiStepLR", "milestones"),
    ("ExponentialLR", "gamma"),
    ("CyclicLR", "base_lr"),
    ("CyclicLR", "max_lr"),
    ("OneCycleLR", "max_lr"),
)
"""torch 2.0 to 2.13 optim/lr_scheduler.py: arguments of `__init__` without a default, the optimizer
left out."""
_OF_SCHEDULES: Final = ("T_max", "T_0", "T_mult", "eta_min", "milestones", "step_size")
"""Arguments of those schedules that no optimizer has."""


def schedule_rows(kind: str) -> Iterator[Row]:
    """What the scripts of a kind hand on to a schedule of torch, or to the wrong class.

    sd-scripts v0.9.1 library/train_util.py and musubi-tuner v0.3.4 training/trainer_base.py
    `get_scheduler_fix`, `get_lr_scheduler`: `getattr(torch.optim.lr_scheduler, lr_scheduler_type)`
    gets lr_scheduler_args alone, and the optimizer's class gets optimizer_args.
    """
    for name, argument in _REQUIRED:
        yield Row(
            f"{kind}:lr_scheduler_type={name}|torch.optim.lr_scheduler.{name}",
            f"{name} cannot be created without {argument}",
            f"requires {argument}",
            f"TypeError: {name}.__init__() missing 1 required positional argument: '{argument}'",
            f'write "{argument}=..." in lr_scheduler_args',
            beside=(f"no {kind}:lr_scheduler_args~{argument.lower()}=", "no config_file"),
        )
    for argument in _OF_SCHEDULES:
        yield Row(
            f"{kind}:optimizer_args~{argument.lower()}=",
            f"optimizer_args gives {argument} to the optimizer, which has no such argument",
            "of a schedule",
            f"TypeError: got an unexpected keyword argument '{argument}'",
            f'write "{argument}=..." in lr_scheduler_args',
        )
