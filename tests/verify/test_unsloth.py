"""Files for Unsloth before its own command, in three releases.

What is asked is `unsloth_cli.commands.train.train` with the emitted file: the pydantic model that
checks it, and the arguments that the command hands to its trainer, which only listens.
"""

import pytest
from tests.verify.trainer_specs import assert_resolved, checked, specs_of

from tunec.targets.unsloth.verify import COMMAND

SPECS = specs_of("unsloth")
RELEASES = ("2026.9.8", "2026.9.14", "2026.10.9")
SEEING = "2026.10.9"
"""The one of these whose command looks for images in the data."""
CASES = [
    (name, at)
    for name in SPECS
    for at in RELEASES
    if at == SEEING or "images" not in SPECS[name]["data"]
]
FEWEST = 19


@pytest.fixture(scope="module")
def checks():
    return checked("unsloth", SPECS, CASES)


@pytest.mark.parametrize("release", RELEASES)
def test_the_command_resolves_what_was_planned(checks, release):
    specs = {name for name, at in CASES if at == release}
    assert_resolved(checks, f"unsloth@{release}", COMMAND, specs, FEWEST)
