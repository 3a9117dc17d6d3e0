"""What a run asks of ZeRO."""

from collections.abc import Iterable, Iterator

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.place import Place


def stage_of(run: LintContext) -> Effective:
    """The ZeRO stage of the run, as it will be."""
    return run.effective("deepspeed", "zero_optimization.stage")


def said_in(run: LintContext, keys: Iterable[str]) -> Iterator[Place]:
    """Keys below zero_optimization that a document says, in the order of the keys."""
    for key in keys:
        yield from run.each("deepspeed", f"zero_optimization.{key}")
