"""The time account against published runs; `measured_runs` says where they come from.

A run's error is the logarithm of what the account says over what was published. The judging half
may not get worse: its bounds are what the account reached, up to the next hundredth. The sources of
a search keep the bounds that they had before the next one.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from fit import EXPECTED, SHARED
from judging import by_class, ranked
from measured_runs import SOURCES, runs

from tunec.compiler.analyses.time.coefficients import FITTED

FIRST: Final[dict[str, tuple[float, float]]] = {
    # class: median and 95th percentile of the absolute errors of judging runs
    "all": (0.07, 0.49),
    "dense": (0.07, 0.50),
    "experts": (0.15, 0.19),
    "diffusion": (0.04, 0.09),
    "full": (0.14, 0.49),
    "LoRA": (0.06, 0.51),
    "QLoRA": (0.08, 0.32),
    "one device": (0.06, 0.17),
    "several devices": (0.09, 0.54),
    "up to 1,024 tokens": (0.06, 0.51),
    "1,025 to 8,192 tokens": (0.08, 0.32),
    "above 8,192 tokens": (0.20, 0.49),
}
BOTH: Final[dict[str, tuple[float, float]]] = {
    "all": (0.08, 0.56),
    "experts": (0.17, 0.57),
    "full": (0.15, 1.21),
    "QLoRA": (0.07, 0.35),
    "one device": (0.06, 0.33),
    "several devices": (0.10, 1.09),
    "up to 1,024 tokens": (0.10, 0.57),
    "second search": (0.17, 1.62),
}
ALL: Final[dict[str, tuple[float, float]]] = {
    "all": (0.08, 0.49),
    "full": (0.13, 0.37),
    "one device": (0.08, 0.27),
    "several devices": (0.09, 0.57),
    "up to 1,024 tokens": (0.12, 0.35),
    "above 8,192 tokens": (0.13, 0.49),
    "third search": (0.12, 0.22),
}
FOURTH: Final[dict[str, tuple[float, float]]] = {
    "all": (0.10, 0.65),
    "full": (0.12, 0.56),
    "LoRA": (0.07, 0.58),
    "QLoRA": (0.10, 1.00),
    "one device": (0.10, 0.62),
    "several devices": (0.10, 0.70),
    "up to 1,024 tokens": (0.11, 0.54),
    "1,025 to 8,192 tokens": (0.09, 0.95),
    "fourth search": (0.27, 0.95),
}
"""Bounds of all judging runs, by class: the median and 95 % of errors."""
REACHED: Final = {1: FIRST, 2: BOTH, 3: ALL, 4: FOURTH}
RANKED: Final = {1: (400, 0.92), 2: (500, 0.90), 3: (550, 0.91), 4: (650, 0.93)}
"""By searches: the least number of pairs, and the least share that is ranked as measured."""
LATER: Final = frozenset({"easycontext", "vectorlm"})
"""Judging sources of the first search that the account of before was not asked about."""


def test_every_source_belongs_to_one_half_and_states_where_it_is() -> None:
    found = Counter(run.source for run in runs())
    assert set(found) == set(SOURCES)
    assert sum(found.values()) > 400
    halves = Counter(SOURCES[name]["split"] for name in found)
    assert set(halves) == {"fit", "judge"}
    assert min(halves.values()) >= 7
    assert all({"repo", "commit", "path", "about"} <= set(source) for source in SOURCES.values())


def test_rows_are_compared_once_with_one_speed() -> None:
    rows = [run.row for run in runs()]
    assert all(("seconds" in row) != ("tokens_per_second" in row) for row in rows)
    lines = [json.dumps(row, sort_keys=True) for row in rows]
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize(
    ("search", "name"), [(search, name) for search, bounds in REACHED.items() for name in bounds]
)
def test_judging_runs_are_within_what_was_reached(search: int, name: str) -> None:
    found, (median, p95) = by_class("judge", search)[name], REACHED[search][name]
    assert found.median <= median
    assert found.p95 <= p95


@pytest.mark.parametrize("search", RANKED)
def test_pairs_of_judging_options_are_ranked_as_measured(search: int) -> None:
    right, pairs = ranked("judge", search)
    least, share = RANKED[search]
    assert pairs > least
    assert right >= share * pairs


def test_sources_of_later_searches_judge() -> None:
    found = {name: source["split"] for name, source in SOURCES.items() if "search" in source}
    assert len(found) >= 13
    assert set(found.values()) == {"judge"}


def test_what_the_account_said_before_stands_beside_the_rows() -> None:
    before = json.loads(Path(__file__).with_name("before.json").read_text())
    assert set(FIRST) <= set(before["judge"])
    first = [run for run in runs() if run.split == "judge" and run.search == 1]
    known = [run for run in first if run.source not in LATER]
    assert before["judge"]["all"][0] == len(known)


def test_constants_are_near_what_they_stand_for() -> None:
    """The fit explains runs by amounts that the kernels could have, not by any that fit."""
    assert set(SHARED) <= set(EXPECTED)
    for name in SHARED:
        assert 0.5 < getattr(FITTED, name) / EXPECTED[name] < 2, name
