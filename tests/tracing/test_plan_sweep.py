"""Default plans of the catalogue's models, as `benchmarks/plan_sweep.py` has traced them.

`docs/memory-accuracy.md` shows them. `just plan-sweep MODEL...` traces anew; where only the account
has changed, `just plan-sweep --account` renews the rows.
"""

from itertools import product

import pytest

from plan_page import WIDE, reason_for, reasons  # isort: skip
from plan_sweep import (  # isort: skip
    CLUSTERS,
    METHODS,
    accounted,
    cell_of,
    error_of,
    fits,
    kept,
    models,
    of_today,
    sweep,
)

ROWS = kept()
TRACED = {name: row for name, row in ROWS.items() if "refused" not in row}
STALE = 0.001
"""The difference from the account of today beyond which a row is recorded anew."""
FAR = 0.03
"""The error beyond which the reason is known."""
AGAIN = 8
"""How many rows a nightly run traces again."""
SAMPLED = 12
"""Of how many rows one is planned anew by day; by night all are."""


def test_the_sweep_is_wide():
    assert len(TRACED) >= 260
    assert len({row["model"] for row in TRACED.values()}) >= 260
    assert {(row["method"], row["hardware"]) for row in TRACED.values()} == {
        *product(METHODS, CLUSTERS)
    }
    assert {row["model"] for row in ROWS.values()} <= set(models())


def test_every_plan_that_is_said_to_fit_does_so_by_its_trace():
    assert [name for name, row in TRACED.items() if not fits(row)] == []


def test_the_accounts_are_those_of_today():
    today = {name: accounted(row) for name, row in TRACED.items()}
    stale = [
        f"{name}: {TRACED[name]['account_bytes']} then, {now} now"
        for name, now in today.items()
        if abs(now / TRACED[name]["account_bytes"] - 1) > STALE
    ]
    assert stale == []


@pytest.mark.parametrize("among", [SAMPLED, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_layouts_are_those_that_are_planned_today(among):
    asked = sorted(TRACED)[::among]
    assert asked
    assert [name for name in asked if not of_today(TRACED[name])] == []


def test_what_is_far_off_is_so_for_a_known_reason():
    far = {name for name, row in TRACED.items() if abs(error_of(row)) > FAR}
    assert {name for name in far if not reason_for(TRACED[name])} == set()
    wide = {row["model"] for row in TRACED.values() if abs(error_of(row)) > WIDE}
    assert reasons().keys() <= wide


@pytest.mark.nightly
def test_tracing_again_gives_the_same_bytes():
    for name in ("torch", "transformers", "diffusers", "peft", "deepspeed"):
        pytest.importorskip(name)
    names = sorted(TRACED)[:: max(1, len(TRACED) // AGAIN)]
    asked = {name: cell_of(TRACED[name]) for name in names}
    found = dict(sweep(asked, 1, (300, 8)))
    assert {name: row.get("phases", row) for name, row in found.items()} == {
        name: TRACED[name]["phases"] for name in names
    }
