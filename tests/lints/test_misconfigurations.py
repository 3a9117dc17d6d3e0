"""Misconfigurations of the world: each is found, at its keys, and its mended form is clean."""

from pathlib import Path

import pytest
from corpus import Case, cases
from lint_asking import Answer, lint

NOT_YET = {"MC095"}
"""Cases that no rule finds yet. The set only shrinks: a case that is found has to leave it."""
CASES = cases()
FOUND = [case for case in CASES if case.rules]


def _lint(case: Case, folder: Path, *, is_fixed: bool = False) -> Answer:
    texts = case.mended() if is_fixed else case.texts()
    return lint(folder, texts, case.command(texts, is_fixed=is_fixed))


def test_every_case_is_found_or_listed() -> None:
    assert {case.id for case in CASES if not case.rules} == NOT_YET


@pytest.mark.parametrize("case", FOUND, ids=lambda case: case.id)
def test_a_case_is_found_at_its_keys(case: Case, tmp_path: Path) -> None:
    answer = _lint(case, tmp_path)
    assert set(case.rules) <= set(answer.names)
    told = [each for each in answer.findings if each["id"] in case.rules]
    assert case.consequence in {each["consequence"] for each in told}
    paths = {label["path"] for each in told for label in each["labels"]}
    assert set(case.keys) <= paths
    assert all(label["line"] for each in told for label in each["labels"])


@pytest.mark.parametrize("case", FOUND, ids=lambda case: case.id)
def test_the_mended_form_is_clean(case: Case, tmp_path: Path) -> None:
    assert case.fixed or case.fixed_arguments is not None, "a case says how it is mended"
    answer = _lint(case, tmp_path, is_fixed=True)
    assert not set(case.rules) & {e["id"] for e in answer.findings if e["severity"] != "note"}
    assert [each["id"] for each in answer.findings if each["severity"] == "error"] == []


@pytest.mark.parametrize("case", [c for c in CASES if c.id in NOT_YET], ids=lambda case: case.id)
def test_a_case_that_is_not_found_yet_is_read(case: Case, tmp_path: Path) -> None:
    answer = _lint(case, tmp_path)
    assert answer.code in (0, 1), answer.err
