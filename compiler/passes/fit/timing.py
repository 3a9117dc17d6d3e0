"""The time of a step in the layout that was decided, for passes after the search."""

from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.analyses.time.account import step_time
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.fit.fit import problem_of


def step_seconds(facts: Facts, draft: Draft) -> float | None:
    """The time of an optimizer step by the time account; None for a layout beyond the machine."""
    problem = problem_of(facts, draft)
    try:
        return step_time(problem.workload, Layout.of(draft), problem.machine).step_seconds
    except ValueError:
        return None
