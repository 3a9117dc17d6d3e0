"""Files for ms-swift before its own parser, in three releases.

What is asked is `parse_args` of `swift sft` or `swift rlhf` with the flags that its command line
makes of the file, told of the planned devices, in an environment with a transformers, trl, peft and
accelerate that the release takes.
"""

import pytest
from tests.verify.trainer_specs import assert_resolved, checked, specs_of

from tunec.targets.ms_swift.packages import RELEASES
from tunec.targets.ms_swift.verify import PARSER

SPECS = specs_of("ms_swift")
CASES = [(name, at) for name in SPECS for at in RELEASES]
FEWEST = 46


@pytest.fixture(scope="module")
def checks():
    return checked("ms-swift", SPECS, CASES)


@pytest.mark.parametrize("release", RELEASES)
def test_the_program_resolves_what_was_planned(checks, release):
    assert_resolved(checks, f"ms-swift@{release}", PARSER, set(SPECS), FEWEST)
