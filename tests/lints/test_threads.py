"""Misconfigurations of this year's threads: what lint finds of them, asked as people ask it."""

from pathlib import Path
from typing import Any

import pytest
from tests.lints.corpus import held, text_of
from tests.lints.lint_asking import lint

from tunec.compiler.lints.index import rule_names

CASES: list[dict[str, Any]] = [*held("threads.yaml"), *held("threads_later.yaml")]
FOUND = [case for case in CASES if "rule" in case]
OPEN = [case for case in CASES if "open" in case]


def test_each_is_found_or_says_why_not() -> None:
    assert len(FOUND) + len(OPEN) == len(CASES) == 309
    assert len({case["title"] for case in CASES}) == len(CASES)
    assert all(case["source"] and case["keys"] for case in CASES)
    assert all(case["rule"] in rule_names() for case in FOUND)
    assert all(case["before"] == "missed" for case in OPEN)


@pytest.mark.parametrize("case", FOUND, ids=lambda case: case["title"])
def test_it_is_found_at_its_key_and_mended(case: dict[str, Any], tmp_path: Path) -> None:
    told = [each for each in _asked(case, case["files"], tmp_path / "bad") if _is_it(each, case)]
    assert {each["consequence"] for each in told} == {case["consequence"]}
    files = {**case["files"], **case["mended"]}
    answer = _asked(case, files, tmp_path / "good")
    assert [each["id"] for each in answer if each["severity"] == "error"] == []
    assert not [each for each in answer if _is_it(each, case) and each["severity"] != "note"]


@pytest.mark.parametrize("case", OPEN, ids=lambda case: case["title"])
def test_what_is_open_is_open(case: dict[str, Any], tmp_path: Path) -> None:
    places = [
        label["path"]
        for each in _asked(case, case["files"], tmp_path / "bad")
        if each.get("consequence") == case["consequence"]
        for label in each["labels"]
    ]
    assert set(case["keys"]).isdisjoint(places)


def _asked(case: dict[str, Any], files: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    folder.mkdir()
    texts = {name: text_of(name, data) for name, data in files.items() if data is not None}
    findings: list[dict[str, Any]] = lint(
        folder, texts, [".", *case.get("arguments", "").split()]
    ).findings
    return findings


def _is_it(finding: dict[str, Any], case: dict[str, Any]) -> bool:
    places = {label["path"] for label in finding["labels"]}
    return finding["id"] == case["rule"] and not places.isdisjoint(case["keys"])
