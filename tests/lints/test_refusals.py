"""What the programs refuse or pass over is found, at its key, and its mended form is clean."""

from pathlib import Path

import pytest
from tests.lints.lint_asking import lint
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
