"""Factors and margins that follow from runs."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.calibrate.logs import ran

from tunec.compiler.analyses.measurements import as_ran, seen_of
from tunec.compiler.analyses.time.account import TimeAccount
from tunec.compiler.analyses.time.pace import ALIKE, WAITS_FOR, apart, expected, scaled
from tunec.compiler.calibrate.attribution import error, factors, is_alone, margin, part_of
from tunec.compiler.calibrate.record import derived
from tunec.schemas.hardware.measurements import Measured

ASSUMED = {"one": 1000, "several": 2000}


def forecast(run, learnt):
    return sum(scaled(run.seconds.accounted, tuple(learnt.items())).values())


def test_a_run_as_accounted_for_teaches_nothing():
    learnt = factors([ran(3.0)])
    assert set(learnt) == {"products", "links"}
    assert all(factor == pytest.approx(1, abs=1e-3) for factor in learnt.values())


def test_two_runs_that_take_twice_as_long_are_forecast_and_mend_the_judgements_first():
    learnt = factors([ran(6.0), ran(6.1)])
    assert forecast(ran(6.0), learnt) == pytest.approx(6.0, rel=0.1)
    assert learnt["links"] > 1.5 * learnt["products"] >= 1


COMPUTED = {"forward": 2.0, "memory traffic": 1.0}


@pytest.mark.parametrize(
    ("took", "forecasts"), [([3.3], 3.1), ([6.0], 3.0), ([3.0, 6.0], 3.0), ([6.0, 6.1], 6.05)]
)
def test_a_run_that_is_far_off_counts_once_another_agrees(took, forecasts):
    runs = [ran(each, terms=COMPUTED) for each in took]
    learnt = factors(runs)
    assert forecast(runs[0], learnt) == pytest.approx(forecasts, rel=0.03)
    assert is_alone(runs[-1].seconds, learnt) == (took in ([6.0], [3.0, 6.0]))


def test_what_runs_that_were_left_out_speak_against_is_not_used():
    shapes = [{"forward": 2.0}, {"forward": 3.0}, {"forward": 4.0}]
    took = [ran(1.2 * 2, terms=shapes[0]), ran(0.8 * 3, terms=shapes[1]), ran(4.0, terms=shapes[2])]
    assert factors(took) == {"products": 1}
    assert factors([ran(1.2 * sum(each.values()), terms=each) for each in shapes])["products"] > 1.1


def test_runs_of_other_shapes_part_the_terms():
    shapes = [{"forward": length, "gradient exchange": 1.0} for length in (9.0, 3.0, 1.0)]
    learnt = factors([ran(each["forward"] + 3, terms=each) for each in shapes])
    assert learnt["products"] == pytest.approx(1, abs=0.1)
    assert learnt["links"] == pytest.approx(3, rel=0.2)


def test_the_parts_of_a_step_part_its_terms():
    terms = {"forward": 2.0, "optimizer step": 2.0}
    whole = factors([ran(took, terms=terms) for took in (6.0, 6.1)])
    told = factors(
        [ran(took, terms=terms, parts={"update": took - 2, "passes": 2.0}) for took in (6.0, 6.1)]
    )
    assert told["memory"] > whole["memory"]
    assert told["products"] < whole["products"]
    assert {part_of(term) for term in WAITS_FOR} == {"update", "exchange", "passes"}


@given(st.floats(0.01, 100))
def test_a_run_s_own_factors_are_never_further_off_than_the_account(time):
    runs = [ran(time)]
    found = error(runs, factors(runs))
    assert found.after <= found.before + 1e-3


def test_tensors_beyond_the_account_raise_the_margin_and_fewer_do_not_lower_it():
    more = ran(memory={"accounted": 1000, "allocated": 1026})
    less = ran(memory={"accounted": 1000, "allocated": 600})
    assert margin((more, less), ASSUMED).tensors == pytest.approx(1.026)
    assert margin((less,), ASSUMED).tensors == 1


def test_what_is_beside_the_allocator_counts_at_once_where_it_is_more():
    def beside(size, devices=1):
        return ran(memory={"accounted": 1, "reserved": 500, "used": 500 + size}, devices=devices)

    assert margin((beside(1500),), ASSUMED).beside == {"one": 1500}
    assert margin((beside(300), beside(200)), ASSUMED).beside == {}
    assert margin((beside(300), beside(200), beside(250)), ASSUMED).beside == {"one": 300}
    assert margin((beside(2100, devices=2), beside(10)), ASSUMED).beside == {"several": 2100}


def test_a_file_whose_margin_is_below_what_a_run_showed_is_refused():
    run = ran(memory={"accounted": 1000, "allocated": 1100, "reserved": 1100, "used": 4000})
    found = derived((run,), "lab", ASSUMED).model_dump()
    Measured.model_validate(found)
    for wrong in ({"tensors": 1.05, "beside": {}}, {"tensors": 1.1, "beside": {"one": 2000}}):
        with pytest.raises(ValidationError, match="and a run had"):
            Measured.model_validate({**found, "margin": wrong})


def test_a_plan_that_ran_is_forecast_as_measured_and_one_unlike_it_by_factors_alone():
    measured = derived((ran(6.0, terms=COMPUTED),), "lab", ASSUMED)
    pace = tuple(measured.factors.items())
    same = TimeAccount(scaled(COMPUTED, pace), 1, 1.0, COMPUTED)
    assert as_ran(same, measured).step_seconds == pytest.approx(6.0)
    assert as_ran(same, measured).accounted == COMPUTED
    unlike = TimeAccount({"kernel launches": 3.0}, 1, 1.0)
    assert as_ran(unlike, measured) is unlike
    assert as_ran(same, None) is same


@given(moved=st.floats(0, 1), took=st.lists(st.floats(1, 9), min_size=1, max_size=3))
def test_the_nearer_a_plan_is_to_measured_ones_the_more_of_their_errors_it_takes(moved, took):
    seen = seen_of(derived(tuple(ran(each, terms=COMPUTED) for each in took), "lab", ASSUMED))
    terms = {"forward": 2.0 - moved, "memory traffic": 1.0, "loss": moved}
    factor, lefts = expected(terms, seen), [each.left for each in seen]
    assert min(0.0, *lefts) - 1e-9 <= log(factor) <= max(0.0, *lefts) + 1e-9
    if apart(terms, COMPUTED) >= ALIKE:
        assert factor == 1
