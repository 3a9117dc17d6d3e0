"""The step time of the decided layout, for passes after the search."""

from tunec.compiler.analyses.measurements import as_ran
from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.account import TimeAccount, step_time, with_length
from tunec.compiler.analyses.time.machine import Machine
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.fit.fit import problem_of


def step_seconds(facts: Facts, draft: Draft) -> float | None:
    """The time of an optimizer step; None for a layout that the machine cannot run."""
    found = accounted(facts, draft)
    return None if found is None else found.step_seconds


def accounted(facts: Facts, draft: Draft) -> TimeAccount | None:
    """The time account of an optimizer step; None for a layout that the machine cannot run."""
    problem = problem_of(facts, draft)
    return _forecast(facts, draft, problem.workload, problem.machine)


def step_seconds_of(facts: Facts, draft: Draft, tokens: float) -> float | None:
    """Like `step_seconds`, for samples or packed rows of this many tokens, padding included."""
    problem = problem_of(facts, draft)
    found = _forecast(facts, draft, with_length(problem.workload, tokens), problem.machine)
    return None if found is None else found.step_seconds


def _forecast(
    facts: Facts, draft: Draft, workload: Workload, machine: Machine
) -> TimeAccount | None:
    try:
        found = step_time(workload, Layout.of(draft), machine)
    except ValueError:
        return None
    return as_ran(found, facts.cluster.measured)
