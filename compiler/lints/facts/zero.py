"""What a run asks of ZeRO."""

from collections.abc import Iterable, Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import keys


def zero_keys(*names: str) -> tuple[str, ...]:
    """Keys below zero_optimization, as a rule names what it reads."""
    return keys("deepspeed", *(f"zero_optimization.{name}" for name in names))


STAGE: Final = zero_keys("stage")
OFFLOADS_OPTIMIZER: Final = zero_keys("offload_optimizer.device", "cpu_offload")
"""What offloads the optimizer, the second by its older name."""


def stage_of(run: LintContext) -> Effective:
    """The ZeRO stage of the run, as it will be."""
    return run.effective("deepspeed", "zero_optimization.stage")


def said_in(run: LintContext, keys: Iterable[str]) -> Iterator[Place]:
    """Keys below zero_optimization that a document says, in the order of the keys."""
    for key in keys:
        yield from run.each("deepspeed", f"zero_optimization.{key}")
