"""Rows are asked of a view by the keys of the reader that it shows, and know it from a file."""

from dataclasses import replace
from pathlib import Path

import pytest
from lint_asking import lint

from tunec.compiler.lints import lint as linting
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.rows import Row, found

_ACCELERATE = """\
distributed_type: DEEPSPEED
deepspeed_config:
  zero_stage: 3
  gradient_clipping: 0.5
"""
_CLIPPED = Row(
    "deepspeed:gradient_clipping>0",
    "{0.value} at stage {1.value}",
    beside=("zero_optimization.stage=3",),
)
"""Keys of DeepSpeed, which accelerate's file says by names of its own."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LintContext:
    """Accelerate's file, with the view of DeepSpeed's keys in it."""
    runs: list[LintContext] = []
    check = linting.check
    monkeypatch.setattr(linting, "check", lambda run: runs.append(run) or check(run))
    lint(tmp_path, {"accelerate.yaml": _ACCELERATE}, ("accelerate.yaml",))
    return runs[0]


@pytest.mark.parametrize("row", [_CLIPPED, replace(_CLIPPED, by_effective=True)])
def test_conditions_beside_are_asked_of_the_same_view(run: LintContext, row: Row) -> None:
    assert [each.message for each in found((row,), run)] == ["0.5 at stage 3"]


@pytest.mark.parametrize("row", [_CLIPPED, replace(_CLIPPED, by_effective=True)])
def test_a_row_for_files_leaves_views_out(run: LintContext, row: Row) -> None:
    alone = replace(row, message="{0.value}", beside=())
    assert [each.message for each in found((alone,), run)] == ["0.5"]
    assert list(found((replace(alone, files_only=True),), run)) == []
