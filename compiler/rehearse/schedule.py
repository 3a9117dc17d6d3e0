"""The learning rate of a plan's schedule in each step."""

import math

from tunec.compiler.ir.plan import Plan


def rate(plan: Plan, step: int, total: int) -> float:
    """The learning rate of optimizer step `step`, counted from 0, of a run of `total` steps.

    transformers 4.40.2 to 5.23.0 optimization.py: `get_constant_schedule`, `get_constant_
    schedule_with_warmup`, `get_linear_schedule_with_warmup`, `get_cosine_schedule_with_warmup`.
    """
    return plan.optimizer.learning_rate * _share(plan, step, total)


def _warmup(plan: Plan, total: int) -> int:
    """Warm-up steps, counted like `TrainingArguments.get_warmup_steps`."""
    share = plan.schedule.warmup_share
    return (plan.schedule.warmup_steps or 0) if share is None else math.ceil(total * share)


def _share(plan: Plan, step: int, total: int) -> float:
    kind, warmup = plan.schedule.kind, _warmup(plan, total)
    if kind == "constant":
        return 1.0
    if step < warmup:
        return step / max(1, warmup)
    past = (step - warmup) / max(1, total - warmup)
    if kind == "linear":
        return max(0.0, 1 - past)
    if kind == "cosine":
        return max(0.0, 0.5 * (1 + math.cos(math.pi * past)))
    return 1.0
