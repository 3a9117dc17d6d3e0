"""The rows of docs/derived-denoisers.md: of classes that there are, as deriving comes to today."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import denoiser_sweep  # type: ignore[import-not-found]  # noqa: E402


def test_the_rows_are_of_classes_of_the_release():
    rows = denoiser_sweep.kept()
    releases = {row["release"] for row in rows.values()}
    if releases != {f"diffusers {diffusers.__version__}"}:
        pytest.skip(f"the rows are of {', '.join(releases)}")
    assert set(rows) <= set(denoiser_sweep.denoisers())
    assert len(rows) >= 70


def test_what_a_card_or_a_rule_plans_is_as_the_rows_say():
    planned = {name: row["by"] for name, row in denoiser_sweep.kept().items() if "by" in row}
    known = denoiser_sweep.known()
    assert planned == {name: known[name] for name in planned}
    assert planned.keys() == known.keys() & denoiser_sweep.denoisers().keys()


def test_a_class_is_asked_in_a_process_of_its_own_and_answers_as_before():
    asked = {"RFD4ProteinaTransformer": denoiser_sweep.asked_of("RFD4ProteinaTransformer")}
    for found in denoiser_sweep.sweep(asked, 1, (120, 8)):
        row = denoiser_sweep.kept()[found["family"]]
        assert {**found, "release": row["release"]} == row
