"""Files for verl before its own programs, in three releases.

What is asked is `verl.trainer.sft_trainer` as it is started: Hydra composes the emitted file over
verl's own, the trainer makes its classes of the sections, and its own functions say what these come
to: how often its loader deals, how many micro batches it makes, the optimizer, the rate, the mesh,
and the adapter that peft then puts into the model. `verl.trainer.main_ppo` is asked in the same way
until it would start Ray, with its own checks of the whole.
"""

import pytest
from tests.verify.edited_runs import faults
from tests.verify.trainer_specs import assert_resolved, checked, specs_of, with_faults

from tunec.compiler.verify.queries import verify
from tunec.targets.verl.packages import RELEASES
from tunec.targets.verl.verify import REWARDING, TRAINER

SPECS = specs_of("verl")
CASES = [(name, at) for name in SPECS for at in RELEASES]
FEWEST = 38


REWARDED = specs_of("verl_grpo")
REWARDED_CASES = [(name, at) for name in REWARDED for at in RELEASES]
FEWEST_REWARDED = 40


@pytest.fixture(scope="module")
def checks():
    return checked("verl", SPECS, CASES)


@pytest.fixture(scope="module")
def rewarded():
    return checked("verl", REWARDED, REWARDED_CASES)


@pytest.mark.parametrize("release", RELEASES)
def test_the_program_of_rewards_resolves_what_was_planned(rewarded, release):
    assert_resolved(rewarded, f"verl@{release}", REWARDING, set(REWARDED), FEWEST_REWARDED)


@pytest.mark.parametrize("release", RELEASES)
def test_the_program_resolves_what_was_planned(checks, release):
    assert_resolved(checks, f"verl@{release}", TRAINER, set(SPECS), FEWEST)


FAULTS = faults("verl")
SPECS_OF = {TRAINER: SPECS, REWARDING: REWARDED}


def _asked_of(program):
    faults_of = {name: each for name, each in FAULTS.items() if each.program == program}
    edited = with_faults("verl", SPECS_OF[program], faults_of, RELEASES[-1])
    return {each.spec: each for each in verify(edited) if each.program == program}


@pytest.fixture(scope="module")
def planted():
    return {name: check for program in SPECS_OF for name, check in _asked_of(program).items()}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(planted, name):
    check, fault = planted[name], FAULTS[name]
    if check.status == "unchecked":
        pytest.skip(f"not checked: {check.reason}")
    assert check.status == fault.status, check
    found = [each for each in check.differences if each.key == fault.key]
    assert fault.resolved in [each.resolved for each in found], check
    assert not fault.slot or fault.slot in {each.slot for each in found}
