"""Numbers as the rules about batches, schedules and optimizers take them."""

from typing import Any, TypeGuard

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.effective import Effective


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_positive(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number above zero."""
    return is_number(value) and value > 0


def number_of(value: Any) -> float | None:
    """The number that a reader makes of a value, which may be written as text; None for none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def trainer_batch(run: LintContext) -> tuple[Effective, Effective] | None:
    """The trainer's micro batch and accumulation, if both are known whole numbers above zero."""
    micro = run.effective("trainer", "per_device_train_batch_size")
    steps = run.effective("trainer", "gradient_accumulation_steps")
    if not all(is_whole(each.value) and each.value > 0 for each in (micro, steps)):
        return None
    return micro, steps


def engine_of(run: LintContext) -> str | None:
    """`DeepSpeed` or `FSDP` where the files say that it shards the run."""
    if run.of("deepspeed") or run.said("trainer", "deepspeed"):
        return "DeepSpeed"
    named = [run.said("trainer", "fsdp"), run.said("accelerate", "fsdp_config")]
    return "FSDP" if any(each is not None and each.value for each in named) else None
