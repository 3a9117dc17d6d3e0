"""Misconfigurations collected from threads and readers' own checks: what was found stays found."""

from pathlib import Path
from typing import Any

import pytest
from tests.lints.corpus import held, text_of
from tests.lints.lint_asking import lint

from tunec.compiler.lints.index import rule, rule_names

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
    texts = {name: text_of(name, data) for name, data in case["files"].items()}
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
    files = {**case["files"], **case["mended"]}
    texts = {name: text_of(name, data) for name, data in files.items() if data is not None}
    flags = case.get("mended_arguments", case.get("arguments", ""))
    answer = lint(tmp_path, texts, [*_named(texts), *flags.split()])
    assert [each["id"] for each in answer.findings if each["severity"] == "error"] == []
    told = [each for each in answer.findings if each["id"] == case["rule"]]
    assert all(each["severity"] == "note" for each in told)


def _named(texts: dict[str, str]) -> list[str]:
    """All but what another file of the case names."""
    return [name for name in texts if name != "hostfile"]
