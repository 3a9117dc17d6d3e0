"""Collected misconfigurations stay found, and runs that had enough memory are told of none."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tests.lints.corpus import held, text_of
from tests.lints.lint_asking import lint

from tunec.compiler.lints.facts.memory.estimate import OWN_STATES
from tunec.compiler.lints.index import rule, rule_names
from tunec.compiler.passes.fit import states

CASES: list[dict[str, Any]] = [
    case
    for file in sorted((Path(__file__).parent / "data").glob("collected*.yaml"))
    for case in held(file.name)
]
MENDED = [case for case in CASES if "mended" in case]


def test_there_are_many_and_each_says_where_it_is_from() -> None:
    assert len(CASES) >= 120
    assert sum(case["before"] == "missed" for case in CASES) >= 60
    assert all(case["source"] and case["rule"] in rule_names() for case in CASES)
    assert len({case["title"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["title"])
def test_it_is_found_at_its_key(case: dict[str, Any], tmp_path: Path) -> None:
    texts = _texts(case["files"])
    answer = lint(tmp_path, texts, [*_named(texts), *case.get("arguments", "").split()])
    told = [each for each in answer.findings if each["id"] == case["rule"]]
    assert told, answer.names
    assert case["consequence"] in {each["consequence"] for each in told}
    places = {label["path"] for each in told for label in each["labels"]}
    assert case["key"] in places
    # what comes to nothing says why, and is a note
    is_note = all(each["severity"] == "note" for each in told)
    assert is_note == ("harmless" in case) or rule(case["rule"]).severity == "note"


@pytest.mark.parametrize("case", MENDED, ids=lambda case: case["title"])
def test_it_is_clean_when_it_is_mended(case: dict[str, Any], tmp_path: Path) -> None:
    texts = _texts({**case["files"], **case["mended"]})
    flags = case.get("mended_arguments", case.get("arguments", ""))
    answer = lint(tmp_path, texts, [*_named(texts), *flags.split()])
    assert [each["id"] for each in answer.findings if each["severity"] == "error"] == []
    told = [each for each in answer.findings if each["id"] == case["rule"]]
    assert all(each["severity"] == "note" for each in told)


def _texts(files: dict[str, Any]) -> dict[str, str]:
    return {name: text_of(name, data) for name, data in files.items() if data is not None}


def _named(texts: dict[str, str]) -> list[str]:
    """All but what another file of the case names."""
    return [name for name in texts if name != "hostfile"]


THREADS: list[dict[str, Any]] = [*held("threads.yaml"), *held("threads_later.yaml")]
FOUND = [case for case in THREADS if "rule" in case]
OPEN = [case for case in THREADS if "open" in case]


def test_each_thread_s_is_found_or_says_why_not() -> None:
    assert len(FOUND) + len(OPEN) == len(THREADS) == 410
    assert len({case["title"] for case in THREADS}) == len(THREADS)
    assert all(case["source"] and case["keys"] for case in THREADS)
    assert all(case["rule"] in rule_names() for case in FOUND)
    assert all(case["before"] == "missed" for case in OPEN)


@pytest.mark.parametrize("case", FOUND, ids=lambda case: case["title"])
def test_a_thread_s_is_found_at_its_key_and_mended(case: dict[str, Any], tmp_path: Path) -> None:
    told = [each for each in _asked(case, case["files"], tmp_path / "bad") if _is_it(each, case)]
    assert {each["consequence"] for each in told} == {case["consequence"]}
    files = {**case["files"], **case["mended"]}
    answer = _asked(case, files, tmp_path / "good")
    assert [each["id"] for each in answer if each["severity"] == "error"] == []
    assert not [each for each in answer if _is_it(each, case) and each["severity"] != "note"]


@pytest.mark.parametrize("case", OPEN, ids=lambda case: case["title"])
def test_what_is_open_of_threads_is_open(case: dict[str, Any], tmp_path: Path) -> None:
    places = [
        label["path"]
        for each in _asked(case, case["files"], tmp_path / "bad")
        if each.get("consequence") == case["consequence"]
        for label in each["labels"]
    ]
    assert set(case["keys"]).isdisjoint(places)


def _asked(case: dict[str, Any], files: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    folder.mkdir()
    texts = _texts(files)
    findings: list[dict[str, Any]] = lint(
        folder, texts, [".", *case.get("arguments", "").split()]
    ).findings
    return findings


def _is_it(finding: dict[str, Any], case: dict[str, Any]) -> bool:
    places = {label["path"] for label in finding["labels"]}
    return finding["id"] == case["rule"] and not places.isdisjoint(case["keys"])


SOUND: list[dict[str, Any]] = held("sound.yaml")
"""`is_quiet`: no warning either. `arguments`: of the command line, behind the file."""


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case["title"])
def test_nothing_is_wrong_with_a_sound_file(case: dict[str, Any], tmp_path: Path) -> None:
    texts = _texts(case["files"])
    answer = lint(tmp_path, texts, [next(iter(texts)), *case.get("arguments", "").split()])
    told = {"error", "warning"} if case.get("is_quiet") else {"error"}
    assert [each for each in answer.findings if each["severity"] in told] == []


RUNS: list[dict[str, Any]] = held("ran.yaml")
OF_MEMORY = {
    "device-memory-exceeded",
    "offload-beyond-host-memory",
    "every-process-loads-the-model",
}


def test_there_are_many_runs_with_sources() -> None:
    assert len(RUNS) >= 40
    assert all(case["source"] and "--hardware" in case["arguments"] for case in RUNS)


@pytest.mark.parametrize("case", RUNS, ids=lambda case: case["title"])
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
