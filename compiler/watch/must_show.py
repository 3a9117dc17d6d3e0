"""What a short run before the long one must show; `compiler/calibrate/smoke.py` judges it."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.watch.expectation import Expected
from tunec.schemas.units import format_bytes

STEPS: Final = 2
"""Of the short run; it is resumed from the first of them."""
CLOSE: Final = 0.02
"""Share by which the loss of a step that was resumed may differ: the order of sums is not fixed."""


def settings(plan: Plan, output: str | None, name: str) -> tuple[str, ...]:
    """What is laid over a spec for its short run; `output`: the directory that it names, if any."""
    evaluates = plan.schedule.evaluation_steps is not None
    return (
        f"name={name}-smoke",
        "watch=true",
        "train.epochs=null",
        f"train.steps={STEPS}",
        "pin.schedule.warmup_steps=0",
        "pin.schedule.log_steps=1",
        "pin.schedule.save_steps=1",
        "pin.schedule.keep_checkpoints=null",
        *([f"pin.schedule.evaluation_steps={STEPS}"] if evaluates else []),
        *([f"train.output={output}-smoke"] if output is not None else []),
    )


def must_show(plan: Plan, expected: Expected) -> Iterator[tuple[str, str]]:
    """Each check by its name, with what is to be seen."""
    yield "steps", f"{STEPS} steps on the longest samples, each with a loss that is a number"
    tensors = format_bytes(expected.allowed)
    yield "memory", f"at most {tensors} of tensors on a device"
    if plan.schedule.evaluation_steps is not None:
        yield "evaluation", f"one evaluation after step {STEPS}"
    yield "save", f"a checkpoint after step {STEPS}"
    yield "resume", f"step {STEPS} once more from the checkpoint of step 1, with the same loss"
