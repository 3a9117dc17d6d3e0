"""What a repository's programs do themselves settles what lint says of their commands and files."""

from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

import tunec
from tunec.compiler.lints.own_source import OwnSource

CASES = table(__file__)["CASES"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["title"])
def test_a_finding_is_at_the_level_that_the_repository_shows(
    case: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    for name, text in case["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text.rstrip()}\n", "utf-8")
    found = tunec.lint(tmp_path).diagnostics
    assert [each.severity for each in found if each.id == case["rule"]] == case["told"]


def test_a_package_s_module_is_found_by_its_name(tmp_path: Path) -> None:
    files = {
        "a/pack/start.py": "from pack import (work, other)\n",
        "a/pack/work.py": "nearest = 1\n",
        "b/pack/work.py": "farther = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    sources = OwnSource((tmp_path,)).sources_of("pack/start.py")
    assert sources == (files["a/pack/start.py"], files["a/pack/work.py"])
