"""Files that look like those of the programs that are known, and are sound: no error is told.

`is_quiet`: no warning either. `arguments`: of the command line, behind the file.
"""

from pathlib import Path
from typing import Any

import pytest
from tests.lints.corpus import held, text_of
from tests.lints.lint_asking import lint

CASES: list[dict[str, Any]] = held("sound.yaml")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["title"])
def test_nothing_is_wrong(case: dict[str, Any], tmp_path: Path) -> None:
    texts = {name: text_of(name, data) for name, data in case["files"].items()}
    answer = lint(tmp_path, texts, [next(iter(texts)), *case.get("arguments", "").split()])
    told = {"error", "warning"} if case.get("is_quiet") else {"error"}
    assert [each for each in answer.findings if each["severity"] in told] == []
