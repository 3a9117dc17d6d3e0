"""Runs that had enough memory are told of none that is missing; of little that is left, perhaps."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tests.lints.corpus import held, text_of
from tests.lints.lint_asking import lint

from tunec.compiler.lints.facts.memory.estimate import OWN_STATES
from tunec.compiler.passes.fit import states

CASES: list[dict[str, Any]] = held("ran.yaml")
OF_MEMORY = {
    "device-memory-exceeded",
    "offload-beyond-host-memory",
    "every-process-loads-the-model",
}


def test_there_are_many_and_each_says_where_it_is_from() -> None:
    assert len(CASES) >= 40
    assert all(case["source"] and "--hardware" in case["arguments"] for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["title"])
def test_nothing_is_said_to_be_too_much(case: dict[str, Any], tmp_path: Path) -> None:
    texts = {name: text_of(name, data) for name, data in case["files"].items()}
    named = [name for name in texts if "/" not in name]
    answer = lint(tmp_path, texts, [*named, *case["arguments"].split()])
    told = [each for each in answer.findings if each["id"] in OF_MEMORY and not is_near(each)]
    assert [each["message"] for each in told if each["severity"] != "note"] == []


def is_near(finding: dict[str, Any]) -> bool:
    """Whether it says of a run that it fits, with less beside it than a plan leaves."""
    return finding["severity"] == "warning" and finding["message"].startswith("near the limit: ")


def test_states_of_one_trainer_are_those_of_its_own_files() -> None:
    """The newest release of each program is known in lint, whichever the files are for."""
    source = inspect.getsource(states)
    asked = set(re.findall(r'workload\.version\("([\w-]+)"\)', source))
    assert {"axolotl", "unsloth", "verl"} <= asked
    assert asked - {"accelerate", "deepspeed", "trl"} == set(OWN_STATES)
