"""Killed at any step, a command leaves old files or new ones, and the next run tidies up."""

import os

import pytest
from tests.kills.commands import COMMANDS
from tests.kills.trial import Trial

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to be quick")
SEVERAL = 24
"""Steps of a command that are asked in every run; `just kills` draws from all."""


@pytest.mark.parametrize("over", [False, True], ids=["anew", "over"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_killed_at_its_steps(command, over, tmp_path):
    trial = Trial.of(command, tmp_path)
    count = trial.over if over else trial.anew
    assert count >= 3, "the steps are seen"
    wrong = {}
    for step in range(0, count, -(-count // SEVERAL)):
        was_killed, faults = trial.killed(step, over=over)
        assert was_killed, step
        if faults:
            wrong[step] = faults
    assert wrong == {}
