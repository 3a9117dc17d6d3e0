"""Published runs are found: planned as they are, or by a way out that keeps what is learned."""

import pytest
from planning import spec_of
from tests.tables import table

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_mapping

DATA = table(__file__, "published.yaml")
RUNS = DATA["runs"]
CHANGES_WHAT_IS_LEARNED = ("--set data.sequence", "--set method", "--hardware")


def planned(run, settings=()):
    batch = {"batch": {"global": run["batch"]}} if "batch" in run else {}
    data = {"train": "train.jsonl", "samples": 1000, "sequence": run["sequence"]}
    spec = spec_of(
        **{name: run[name] for name in ("model", "method", "hardware")}, data=data, **batch
    )
    loaded = load_mapping(spec, settings)
    assert loaded.spec is not None, loaded.diagnostics
    return plan(loaded)


def ways_of(found):
    (told,) = [each for each in found.diagnostics if each.id == "E0701"]
    lines = (line.strip() for line in (told.help or "").split("\n"))
    return [line for line in lines if line.startswith("--")]


def test_there_are_many_and_each_has_its_source():
    assert len(RUNS) >= 27
    assert {run["source"] for run in RUNS} == DATA["sources"].keys()


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['source']}-{run['model']}")
def test_what_ran_is_planned_or_has_a_way_out(run):
    found = planned(run)
    if found.plan is None:
        ways = ways_of(found)
        assert [way for way in ways if not any(c in way for c in CHANGES_WHAT_IS_LEARNED)], ways
