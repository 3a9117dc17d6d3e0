"""The conditions of a short run before the long one; `compiler/calibrate/smoke.py` checks them."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.watch.expectation import Expected
from tunec.schemas.units import format_bytes

STEPS: Final = 2
"""The number of steps of the short run; it is resumed from the first."""
CLOSE: Final = 0.02
"""Share by which the loss of a resumed step may differ, as the order of sums is not fixed."""


def settings(plan: Plan, output: str | None, name: str) -> tuple[str, ...]:
    """Settings that a short run adds to a spec; `output` is the spec's output directory, if any."""
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
    """Each check by name, with a description of the expected result."""
    yield "steps", f"{STEPS} steps on the longest samples, each with a loss that is a number"
    tensors = format_bytes(expected.allowed)
    yield "memory", f"at most {tensors} of tensors on a device"
    if plan.schedule.evaluation_steps is not None:
        yield "evaluation", f"one evaluation after step {STEPS}"
    yield "save", f"a checkpoint after step {STEPS}"
    yield "resume", f"step {STEPS} once more from the checkpoint of step 1, with the same loss"
