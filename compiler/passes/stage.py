"""A stage of the pipeline: several passes whose results are cached together."""

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Final, NamedTuple

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Pass
from tunec.compiler.passes.fit.search import Answer
from tunec.schemas.caches import BoundedCache


class StageResult(NamedTuple):
    """The result of a stage."""

    outcomes: tuple[tuple[Pass, Outcome], ...]
    groups: Mapping[str, object]
    """The groups that its passes decide, with the pins applied."""
    diagnostics: tuple[Diagnostic, ...]
    answer: Answer | None
    """The search's answer, if the stage contains the search."""


_TAKEN: Final = BoundedCache[StageResult]("compiler.passes.stage.taken", 2048)
"""Results of stages by the inputs of their passes."""


class Stage:
    """Consecutive passes.

    On a thousand clusters most passes read the same few facts, such as which devices there are.
    Looking up each pass in its own cache would take longer than everything else that the passes do.
    """

    def __init__(self, passes: tuple[Pass, ...]) -> None:
        self.passes = passes

    def take(self, facts: Facts, draft: Draft) -> StageResult:
        """The result of the passes in order, if no pin depends on what they decide."""
        if len(self.passes) == 1:
            outcome, groups = self.passes[0].decide(facts, draft)
            return StageResult(
                ((self.passes[0], outcome),), groups, outcome.diagnostics, outcome.answer
            )
        inputs = (*map(draft.groups.__getitem__, self._reads), *facts.values_at(self._fact_inputs))
        equal = self.passes[0].name, facts.pinned_values(self._minded)
        return _TAKEN.of(inputs, equal, partial(self._taken, facts, draft))

    def _taken(self, facts: Facts, draft: Draft) -> StageResult:
        outcomes: list[tuple[Pass, Outcome]] = []
        decided: dict[str, object] = {}
        for each in self.passes:
            outcome, groups = each.decide(facts, draft.with_groups(decided))
            outcomes.append((each, outcome))
            decided |= groups
        found = tuple(said for _, outcome in outcomes for said in outcome.diagnostics)
        answers = (outcome.answer for _, outcome in outcomes if outcome.answer is not None)
        return StageResult(tuple(outcomes), decided, found, next(answers, None))

    @cached_property
    def _reads(self) -> tuple[str, ...]:
        """The groups that its passes read from earlier stages."""
        own = {group for each in self.passes for group in each.decides}
        every = dict.fromkeys(group for each in self.passes for group in each.reads)
        return tuple(group for group in every if group not in own)

    @cached_property
    def _fact_inputs(self) -> tuple[str, ...]:
        """The facts that its passes read."""
        return tuple(dict.fromkeys(path for each in self.passes for path in each.fact_inputs or ()))

    @cached_property
    def _minded(self) -> frozenset[str]:
        """The slots whose pins its passes read."""
        return frozenset[str]().union(*(each.minded for each in self.passes))
