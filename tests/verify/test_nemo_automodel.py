"""Files for NeMo AutoModel before its own loader, in three releases.

What is asked is what its recipe does before it loads a model: its loader reads the emitted file,
its classes are made of the sections, and they build the steps, the optimizer, the rate, the data
sets' configurations and the strategy.
"""

import pytest
from tests.verify.edited_runs import faults
from tests.verify.trainer_specs import assert_resolved, checked, specs_of, with_faults

from tunec.compiler.verify.queries import verify
from tunec.targets.nemo_automodel.packages import RELEASES
from tunec.targets.nemo_automodel.verify import RECIPE

SPECS = specs_of("nemo_automodel")
RECOMPUTES = "recomputed"
"""Refused of 0.5.0, which recomputes otherwise."""
CASES = [(name, at) for name in SPECS for at in RELEASES if (name, at) != (RECOMPUTES, RELEASES[0])]
FEWEST = 38
FAULTS = faults("nemo-automodel")


@pytest.fixture(scope="module")
def checks():
    return checked("nemo-automodel", SPECS, CASES)


@pytest.mark.parametrize("release", RELEASES)
def test_the_recipe_resolves_what_was_planned(checks, release):
    names = {name for name, at in CASES if at == release}
    assert_resolved(checks, f"nemo-automodel@{release}", RECIPE, names, FEWEST)


@pytest.fixture(scope="module")
def planted():
    edited = with_faults("nemo-automodel", SPECS, FAULTS, RELEASES[-1])
    return {each.spec: each for each in verify(edited) if each.program == RECIPE}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(planted, name):
    check, fault = planted[name], FAULTS[name]
    if check.status == "unchecked":
        pytest.skip(f"not checked: {check.reason}")
    assert check.status == fault.status, check
    if fault.status == "differs":
        found = [each for each in check.differences if each.key == fault.key]
        assert fault.resolved in [each.resolved for each in found], check
        assert fault.slot in {each.slot for each in found}
