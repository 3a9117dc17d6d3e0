"""When a trainer evaluates, by what a document says of it."""

from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place

STRATEGIES: Final = ("eval_strategy", "evaluation_strategy")
GIB: Final = 1 << 30


def strategy_of(document: Document) -> Place | None:
    """Where a document says when it evaluates."""
    return next((each for name in STRATEGIES if (each := document.get(name))), None)


def never_evaluates(document: Document) -> bool:
    """Whether the trainer does not evaluate: it says so, or says nothing (the default is no)."""
    if document.unknown & set(STRATEGIES):
        return False
    said = strategy_of(document)
    return said is None or said.value in ("no", False)


def evaluates(run: LintContext) -> bool:
    """Whether a document asks for evaluations."""
    said = [strategy_of(each) for each in run.of("trainer")]
    return any(each is not None and each.value in ("steps", "epoch") for each in said)


def is_loss(name: object) -> bool:
    """Whether a metric's name is that of a loss, which the trainer computes itself."""
    return isinstance(name, str) and name.endswith("loss")
