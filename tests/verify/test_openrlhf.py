"""Flags for OpenRLHF before its own programs, in three releases.

What is asked is `openrlhf.cli.train_sft` or `train_dpo` as it is started, up to its first step: its
parser and the checks behind it, what it loads, shards and deals, and the configuration that its
strategy makes of the flags. That configuration is then DeepSpeed's own to read: what it comes to is
the plan, slot by slot, and an engine is started with it.
"""

import pytest
from tests.verify.edited_runs import faults
from tests.verify.trainer_specs import assert_resolved, checked, specs_of, with_faults

from tunec.compiler.verify.queries import verify
from tunec.targets.openrlhf.packages import RELEASES

SPECS = specs_of("openrlhf")
SUPERVISED = {name for name, spec in SPECS.items() if "objective" not in spec}
OF = {
    "openrlhf.cli.train_sft": SUPERVISED,
    "openrlhf.cli.train_dpo": set(SPECS) - SUPERVISED,
}
NEEDS_A_NEWER_ENGINE = {"muon"}
"""DeepSpeed 0.19.1, which openrlhf 0.10.4 pins, steps Muon's matrices by gradients in part."""
EVERY = "openrlhf"


@pytest.fixture(scope="module")
def checks():
    cases = [
        (name, at)
        for name in SPECS
        for at in RELEASES
        if at != RELEASES[0] or name not in NEEDS_A_NEWER_ENGINE
    ]
    return checked(EVERY, SPECS, cases)


def _asked(specs, release):
    return specs - (NEEDS_A_NEWER_ENGINE if release == RELEASES[0] else set())


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("program", OF)
def test_the_program_resolves_what_was_planned(checks, program, release):
    specs = _asked(OF[program], release)
    mine = [each for each in checks if each.spec.removesuffix(f"-{release}") in specs]
    assert_resolved(mine, f"{EVERY}@{release}", program, specs, 40)


@pytest.mark.parametrize("release", RELEASES)
def test_the_configuration_that_it_makes_is_the_plan_to_deepspeed(checks, release):
    assert_resolved(
        checks, f"{EVERY}@{release}", "DeepSpeedConfig", _asked(set(SPECS), release), 15
    )


@pytest.mark.parametrize("release", RELEASES)
def test_an_engine_starts_with_it(checks, release):
    assert_resolved(
        checks, f"{EVERY}@{release}", "deepspeed.initialize", _asked(set(SPECS), release), 6
    )


FAULTS = faults("openrlhf")


@pytest.fixture(scope="module")
def planted():
    found = verify(with_faults(EVERY, SPECS, FAULTS, RELEASES[-1]))
    return {(each.spec, each.program): each for each in found}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(planted, name):
    fault = FAULTS[name]
    check = planted[name, fault.program]
    if check.status == "unchecked":
        pytest.skip(f"not checked: {check.reason}")
    assert check.status == fault.status, check
    keys = (fault.key, f"flags.{fault.key}")
    found = [each for each in check.differences if each.key in keys]
    if fault.status == "differs":
        assert fault.resolved in [each.resolved for each in found], check
        assert fault.slot in {each.slot for each in found}
