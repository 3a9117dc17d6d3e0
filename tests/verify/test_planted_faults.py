"""Faults planted in compiled files, one of each kind for each consumer: verify names every one."""

import pytest
from tests.verify.edited_runs import EXAMPLE_FILES, SPECS, cases, faults

from tunec.compiler.verify.queries import verify
from tunec.compiler.verify.report import diagnostics, places_of

FAULTS = faults("edited runs")


@pytest.fixture(scope="module")
def checked():
    """The checks of every run as compiled, and of every fault, all asked at once."""
    whole = [case for run in (*SPECS, *EXAMPLE_FILES) for case in cases(run).values()]
    planted = [fault.case(name) for name, fault in FAULTS.items()]
    return verify([*whole, *planted]), places_of(planted)


def test_without_a_fault_nothing_differs(checked):
    runs = {case.spec for run in (*SPECS, *EXAMPLE_FILES) for case in cases(run).values()}
    found = [each for each in checked[0] if each.spec in runs]
    assert len(found) >= 20
    assert {each.status for each in found} <= {"same", "unchecked"}, found
    _skip_unchecked(found)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(checked, name):
    checks, places = checked
    fault = FAULTS[name]
    of_spec = [each for each in checks if each.spec == name]
    asked = [c for c in of_spec if c.program == fault.program and c.file.endswith(fault.file)]
    if not asked:  # another program comes first, and could not be had
        _skip_unchecked(of_spec)
    (check,) = asked
    _skip_unchecked(asked)
    assert check.status == fault.status, check
    found = [each for each in check.differences if each.key == fault.key]
    assert fault.resolved in [each.resolved for each in found], check
    assert {each.file for each in found} == {f"{name}/{fault.file}"}
    assert not fault.slot or fault.slot in {each.slot for each in found}
    said = [each for each in diagnostics([check], places) if each.id.startswith("E")]
    assert any(label.path == fault.key and label.span for each in said for label in each.labels)


@pytest.mark.parametrize(
    "name", [name for name, fault in FAULTS.items() if fault.expected is not None]
)
def test_what_was_planned_is_named(checked, name):
    fault = FAULTS[name]
    for check in checked[0]:
        if (
            check.spec == name
            and check.program == fault.program
            and check.file.endswith(fault.file)
        ):
            _skip_unchecked([check])
            named = [each.expected for each in check.differences if each.key == fault.key]
            assert fault.expected in named or name in OTHERWISE


OTHERWISE = {"dtype swapped", "batch in the engine", "trainer: dtype swapped"}
"""Where a slot is named in another unit than its key's."""


def _skip_unchecked(checks):
    reasons = {each.reason for each in checks if each.status == "unchecked"}
    if reasons:
        pytest.skip(f"not checked: {'; '.join(sorted(reasons))}")


def test_there_is_a_fault_for_every_consumer_and_kind():
    assert len(FAULTS) >= 100
    programs = {fault.program for fault in FAULTS.values()}
    assert len(programs) >= 19
