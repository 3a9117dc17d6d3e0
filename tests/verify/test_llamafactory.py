"""Files for LLaMA-Factory before its own parser, in three releases.

What is asked is `llamafactory.hparams.get_train_args`, told of the planned device, in an
environment with a transformers, trl, peft and accelerate that the release takes; and
`get_dataset_list`, which reads dataset_info.json.
"""

from pathlib import Path

import pytest
import yaml

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_text
from tunec.compiler.verify.cases import cases_of, distinct
from tunec.compiler.verify.contract import Case
from tunec.compiler.verify.queries import verify
from tunec.targets.llamafactory.verify import PARSER
from tunec.targets.registry import TARGETS

SPECS = yaml.safe_load(Path(__file__).with_name("llamafactory_specs.yaml").read_text("utf-8"))
RELEASES = ("0.9.3", "0.9.4", "0.9.5")
NOT_PACKED = ("packed", "0.9.4")
"""That release refuses to pack beside the transformers that goes with it."""
CASES = [(name, at) for name in SPECS for at in RELEASES if (name, at) != NOT_PACKED]
FILES = {PARSER: "llamafactory.yaml", "llamafactory get_dataset_list": "dataset_info.json"}


def compiled(name: str, release: str) -> list[Case]:
    asked = TARGETS.resolve(f"llamafactory@{release}")
    text = yaml.safe_dump({"tunec": 1, "name": f"{name}-{release}", **SPECS[name]})
    result = compile_spec(load_text(text, targets=TARGETS.names()), [asked])
    assert result.ok, [each.message for each in result.diagnostics if each.severity == "error"]
    return cases_of(result, [asked])


@pytest.fixture(scope="module")
def checks():
    cases = [each for name, at in CASES for each in compiled(name, at)]
    return verify(distinct(cases))


def test_specs_are_many():
    assert len(SPECS) >= 20


@pytest.mark.parametrize("program", FILES)
@pytest.mark.parametrize("release", RELEASES)
def test_the_program_resolves_what_was_planned(checks, release, program):
    asked = [each for each in checks if each.consumer == f"llamafactory@{release}"]
    read = [each for each in asked if each.program == program]
    assert [each for each in asked if each.status in ("differs", "refused")] == []
    reasons = {each.reason for each in read if each.status == "unchecked"}
    if reasons:
        pytest.skip(f"not checked: {'; '.join(sorted(reasons))}")
    assert {each.spec for each in read} == {f"{name}-{at}" for name, at in CASES if at == release}
    fewest = 30 if program == PARSER else 2
    assert all(len(each.compared) >= fewest for each in read)
