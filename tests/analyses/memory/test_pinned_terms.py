"""Every term of some plans, in every phase, to the byte: by closed sums that no code here makes.

A line of `pinned_terms.yaml` is a term's name, the sum of its bytes, and the first and the last
phase of its life; where no short sum gives it, its bytes. What a term too many or too few, one that
comes early or goes late, would change is thereby seen without running a model.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pytest
from pinned_plans import PLANS, symbols
from tests.tables import table

from tunec.compiler.analyses.memory.account import account

PINNED: Final[dict[str, Any]] = table(__file__, "pinned_terms.yaml")
Line = tuple[str, str | int, str, str]


def lives(phases: Sequence[str], lines: Iterable[Line], made_of: dict[str, int]) -> Any:
    """Bytes by phase and by name, as pinned."""
    found: dict[str, dict[str, int]] = {phase: {} for phase in phases}
    for name, sum_, first, last in lines:
        size = eval(str(sum_), {"__builtins__": {}}, made_of)  # noqa: S307
        for phase in phases[phases.index(first) : phases.index(last) + 1]:
            assert name not in found[phase], f"{name} is pinned twice in {phase}"
            found[phase][name] = size
    return found


def test_every_plan_is_pinned() -> None:
    assert list(PINNED) == list(PLANS)


@pytest.mark.parametrize("name", PLANS)
def test_every_term_lives_as_pinned(name: str) -> None:
    workload, plan = PLANS[name]()
    found, pinned = account(workload, plan).phases, PINNED[name]
    assert list(found) == pinned["phases"]
    assert found == lives(pinned["phases"], pinned["terms"], symbols(workload, plan))


@pytest.mark.parametrize("name", PLANS)
def test_every_term_of_the_host_is_as_pinned(name: str) -> None:
    workload, plan = PLANS[name]()
    found, pinned = account(workload, plan).host.phases, PINNED[name]
    assert list(found) == pinned["host phases"]
    assert found == lives(pinned["host phases"], pinned["host"], symbols(workload, plan))


@pytest.mark.parametrize("name", PLANS)
def test_the_bytes_of_a_phase_are_the_sum_of_its_terms(name: str) -> None:
    workload, plan = PLANS[name]()
    for phase in account(workload, plan).lines:
        assert sum(phase.terms(3).values()) == phase.at(3), phase.name
