"""The rows of docs/derived-cards.md and derived-denoisers.md: of what there is, and of today."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
diffusers = pytest.importorskip("diffusers")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import card_sweep  # type: ignore[import-not-found]  # noqa: E402
import denoiser_sweep  # type: ignore[import-not-found]  # noqa: E402


@pytest.mark.parametrize(
    ("sweep", "known", "library", "fewest"),
    [
        (card_sweep, card_sweep.families, transformers, 250),
        (denoiser_sweep, denoiser_sweep.denoisers, diffusers, 70),
    ],
    ids=["families", "denoisers"],
)
def test_the_rows_are_of_the_release(sweep, known, library, fewest):
    rows = sweep.kept()
    releases = {row["release"] for row in rows.values()}
    if releases != {f"{library.__name__} {library.__version__}"}:
        pytest.skip(f"the rows are of {', '.join(releases)}")
    assert set(rows) <= set(known())
    assert len(rows) >= fewest


def test_what_a_card_or_a_rule_plans_is_as_the_rows_say():
    planned = {name: row["by"] for name, row in denoiser_sweep.kept().items() if "by" in row}
    known = denoiser_sweep.known()
    assert planned == {name: known[name] for name in planned}
    assert planned.keys() == known.keys() & denoiser_sweep.denoisers().keys()


def families():
    every = card_sweep.families()
    return {name: every[name] for name in ("bert", "blt")}


def denoisers():
    return {"RFD4ProteinaTransformer": denoiser_sweep.asked_of("RFD4ProteinaTransformer")}


@pytest.mark.parametrize(("sweep", "asked"), [(card_sweep, families), (denoiser_sweep, denoisers)])
def test_each_is_asked_in_a_process_of_its_own_and_answers_as_before(sweep, asked):
    for found in sweep.sweep(asked(), 1, (120, 8)):
        row = sweep.kept()[found["family"]]
        assert {**found, "release": row["release"]} == row
