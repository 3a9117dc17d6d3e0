"""Misconfigurations of the world and refusals of programs: found, and their mended form clean."""

from pathlib import Path

import pytest
from tests.lints.corpus import Case, cases
from tests.lints.lint_asking import Answer, lint
from tests.lints.refusals import Refusal, refusals


@pytest.mark.parametrize("case", refusals(), ids=lambda case: case.id)
def test_a_refusal_is_found_at_its_key(case: Refusal, tmp_path: Path) -> None:
    answer = lint(tmp_path, case.bad.files, case.bad.arguments)
    told = [each for each in answer.findings if each["id"] == case.rule]
    assert case.severity in {each["severity"] for each in told}, answer.names
    assert case.at in {label["path"] for each in told for label in each["labels"]}
    assert any(each["help"] for each in told)


@pytest.mark.parametrize("case", refusals(), ids=lambda case: case.id)
def test_the_mended_form_is_clean(case: Refusal, tmp_path: Path) -> None:
    answer = lint(tmp_path, case.mended.files, case.mended.arguments)
    assert case.rule not in {e["id"] for e in answer.findings if e["severity"] != "note"}
    assert [each for each in answer.findings if each["severity"] == "error"] == []


CASES = cases()


def _lint(case: Case, folder: Path, *, is_fixed: bool = False) -> Answer:
    texts = case.mended() if is_fixed else case.texts()
    return lint(folder, texts, case.command(texts, is_fixed=is_fixed))


def test_every_case_says_what_finds_it_and_where() -> None:
    assert len(CASES) >= 50
    assert [case.id for case in CASES if not (case.rules and case.keys)] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_is_found_at_its_keys(case: Case, tmp_path: Path) -> None:
    answer = _lint(case, tmp_path)
    assert set(case.rules) <= set(answer.names)
    told = [each for each in answer.findings if each["id"] in case.rules]
    assert case.consequence in {each["consequence"] for each in told}
    paths = {label["path"] for each in told for label in each["labels"]}
    assert set(case.keys) <= paths
    assert all(label["line"] for each in told for label in each["labels"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_mended_files_are_clean(case: Case, tmp_path: Path) -> None:
    assert case.fixed or case.fixed_arguments is not None, "a case says how it is mended"
    answer = _lint(case, tmp_path, is_fixed=True)
    assert not set(case.rules) & {e["id"] for e in answer.findings if e["severity"] != "note"}
    assert [each["id"] for each in answer.findings if each["severity"] == "error"] == []
