"""The rows of docs/derived-cards.md: of families that there are, and as deriving comes to today."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import card_sweep  # type: ignore[import-not-found]  # noqa: E402


def test_the_rows_are_of_families_of_the_release():
    rows = card_sweep.kept()
    releases = {row["release"] for row in rows.values()}
    if releases != {f"transformers {transformers.__version__}"}:
        pytest.skip(f"the rows are of {', '.join(releases)}")
    assert set(rows) <= set(card_sweep.families())
    assert len(rows) >= 250


def test_a_family_is_asked_in_a_process_of_its_own_and_answers_as_before():
    every, rows = card_sweep.families(), card_sweep.kept()
    asked = {name: every[name] for name in ("bert", "blt")}
    for found in card_sweep.sweep(asked, 1, (120, 8)):
        name = found["family"]
        assert {**found, "release": rows[name]["release"]} == rows[name]
