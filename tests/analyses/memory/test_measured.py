"""The account and its margin against published measurements that lie in this folder."""

from statistics import mean, median

import pytest
from fit_margin import fitted, judged, quantile
from measured import Measurement, measurements

from tunec.compiler.analyses.memory.margin import READING
from tunec.schemas.hardware.catalogue import device
from tunec.schemas.units import GIB

ALL = measurements()
DEVICES = {"A100-80GB": "a100-sxm4-80g", "A800-80GB": "a100-sxm4-80g"}

PADDED = "samples of several lengths: the allocator keeps blocks for each length it has seen"
ABOVE_THE_BOUND = {"msswift-077": PADDED}
"""Readings that judge the bound and lie above it."""

WIDE = "micro-batch and attention code of the table are unknown; without checkpointing"
WIDE_OF_THE_MARK = {"zero-005": WIDE}
"""Allocated bytes that the account misses by more than 8 %."""


def errors(builder: str, metric: str) -> dict[str, float]:
    """By how much the account differs from each measurement, as a share of it."""
    found = {}
    for one in ALL:
        if one.row["builder"] == builder and one.row["metric"] == metric:
            known = one.account
            size = known.peak_bytes if metric == "allocated" else known.required_bytes
            found[one.id] = size / one.row["bytes"] - 1
    return found


def test_16_fms_acceleration_peaks_are_within_3_percent() -> None:
    found = errors("fms", "allocated")
    assert len(found) == 16
    assert max(map(abs, found.values())) < 0.03, found
    assert mean(map(abs, found.values())) < 0.01, found


ZERO = {
    "zero-003": 0.03,
    "zero-004": 0.04,
    "zero-005": 0.10,
    "zero-006": 0.06,
    "zero-007": 0.05,
    "zero-010": 0.03,
}


def test_zero_table_of_llama_7b() -> None:
    """Rows whose batch size their own static and logit bytes bear out.

    Left out: 001 and 002 were read before the Adam states exist, 008, 009 and 011 contradict their
    batch size.
    """
    found = errors("zero", "allocated")
    assert found.keys() == ZERO.keys()
    assert all(abs(found[name]) < most for name, most in ZERO.items()), found


def test_22_allocated_peaks() -> None:
    """The median within 3 %, 95 of 100 within 8 %, and the others by name."""
    found = errors("fms", "allocated") | errors("zero", "allocated")
    sizes = [abs(error) for error in found.values()]
    assert len(sizes) == 22
    assert median(sizes) < 0.03
    assert quantile(sizes, 0.95) < 0.08
    assert {name for name, error in found.items() if abs(error) > 0.08} == set(WIDE_OF_THE_MARK)


def test_21_readings_of_qwen_7b_are_within_11_percent_of_what_is_required() -> None:
    found = errors("qwen", "driver")
    assert len(found) == 21
    assert max(map(abs, found.values())) < 0.11, found
    assert mean(map(abs, found.values())) < 0.06, found


def test_the_bound_on_readings_is_what_its_fit_says() -> None:
    assert fitted() == READING
    readings = [one for one in ALL if one.reading is not None]
    assert f"one of {len(readings)} readings" in _documentation()


def _documentation() -> str:
    from pathlib import Path

    from tunec.compiler.analyses.memory import margin

    return Path(margin.__file__).read_text()


def test_readings_that_were_not_fitted_lie_below_the_bound() -> None:
    found = judged(READING)
    assert len(found) > 20
    assert {name for name, by in found.items() if by > 0} == set(ABOVE_THE_BOUND)


@pytest.mark.parametrize(
    "one", [one for one in ALL if one.row.get("gpu") in DEVICES], ids=lambda one: one.id
)
def test_who_fits_is_let_run_and_who_does_not_is_not(one: Measurement) -> None:
    capacity = device(DEVICES[one.row["gpu"]]).memory
    assert (one.account.required_bytes > capacity) == one.ran_out


def test_readings_are_more_than_is_required() -> None:
    """The driver shows what the allocator keeps, the margin is what it needs."""
    for one in ALL:
        known = one.account
        assert known.peak_bytes < known.required_bytes <= known.reading_bytes
        assert known.reading_bytes < known.peak_bytes * (1 + max(READING.values())) + 2 * GIB
