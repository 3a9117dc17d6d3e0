"""Files for LLaMA-Factory before its own parser, in three releases.

What is asked is `llamafactory.hparams.get_train_args`, told of the planned device, in an
environment with a transformers, trl, peft and accelerate that the release takes; and
`get_dataset_list`, which reads dataset_info.json.
"""

import pytest
from tests.verify.trainer_specs import assert_resolved, checked, specs_of

from tunec.targets.llamafactory.verify import PARSER

SPECS = specs_of("llamafactory")
RELEASES = ("0.9.3", "0.9.4", "0.9.5")
NOT_PACKED = ("packed", "0.9.4")
"""That release refuses to pack beside the transformers that goes with it."""
CASES = [(name, at) for name in SPECS for at in RELEASES if (name, at) != NOT_PACKED]
FEWEST = {PARSER: 30, "llamafactory get_dataset_list": 2}
"""How many values of a spec each program says, at the least."""


@pytest.fixture(scope="module")
def checks():
    return checked("llamafactory", SPECS, CASES)


@pytest.mark.parametrize("program", FEWEST)
@pytest.mark.parametrize("release", RELEASES)
def test_the_program_resolves_what_was_planned(checks, release, program):
    specs = {name for name, at in CASES if at == release}
    assert_resolved(checks, f"llamafactory@{release}", program, specs, FEWEST[program])
