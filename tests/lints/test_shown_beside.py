"""What a folder shows beside a config decides whether it is hurt: each case has a twin."""

from pathlib import Path
from typing import Any, Final

import pytest
from tests.lints.test_evidence import filled_by
from tests.lints.test_witness import written
from tests.tables import table

import tunec

TABLES: Final = table(__file__)
CASES: Final[dict[str, dict[str, Any]]] = TABLES["CASES"]


@pytest.mark.parametrize("name", CASES)
def test_a_finding_has_the_level_that_its_folder_shows(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    files = {file: filled_by(TABLES["TEXTS"], text) for file, text in case["files"].items()}
    found = tunec.lint(written(tmp_path, files)).diagnostics
    assert [each.severity for each in found if each.id == case["rule"]] == case["levels"]


def test_each_rule_is_told_of_something() -> None:
    told = {case["rule"] for case in CASES.values() if case["levels"]}
    assert {case["rule"] for case in CASES.values()} - told == {"field-of-another-release"}
