"""What was made is found again by the same facts, and by no others."""

import gc

import pytest

from tunec.schemas.caches import BoundedCache


class Fact:
    """Equal to every other, and yet another."""

    def __eq__(self, other):
        return isinstance(other, Fact)

    def __hash__(self):
        return 0


def counting():
    made = []

    def make():
        made.append(object())
        return made[-1]

    return made, make


def test_the_same_fact_gives_the_same_result():
    kept, fact, (made, make) = BoundedCache("test", 8), Fact(), counting()
    assert kept.of((fact,), (), make) is kept.of((fact,), (), make)
    assert len(made) == 1


def test_an_equal_fact_is_another():
    kept, (made, make) = BoundedCache("test", 8), counting()
    assert kept.of((Fact(),), (), make) is not kept.of((Fact(),), (), make)
    assert len(made) == 2


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (lambda: {"a": "1"}, lambda: {"a": "1"}, lambda: {"a": "2"}),
        (lambda: {"x", "y"}, lambda: {"y", "x"}, lambda: {"x"}),
        (lambda: "ab" * 9, lambda: "a" + "b" + "ab" * 8, lambda: "ab"),
        (lambda: int("1000"), lambda: int("1000"), lambda: int("1001")),
    ],
)
def test_what_is_made_for_each_plan_is_told_by_its_content(one, same, other):
    kept, (made, make) = BoundedCache("test", 8), counting()
    assert kept.of((one(),), (), make) is kept.of((same(),), (), make)
    kept.of((other(),), (), make)
    assert len(made) == 2


def test_what_is_equal_besides_belongs_to_it():
    kept, fact, (made, make) = BoundedCache("test", 8), Fact(), counting()
    assert kept.of((fact,), "a", make) is not kept.of((fact,), "b", make)
    assert kept.of((fact,), "a", make) is made[0]


def test_no_fact_takes_the_identity_of_one_that_was_let_go():
    kept, (made, make) = BoundedCache("test", 10_000), counting()
    for _ in range(1000):
        kept.of((Fact(),), (), make)
        gc.collect(0)
    assert len(made) == 1000


def test_it_begins_anew_where_there_are_too_many():
    kept, facts, (made, make) = BoundedCache("test", 2), [Fact() for _ in range(3)], counting()
    for fact in (*facts, facts[0]):
        kept.of((fact,), (), make)
    assert len(made) == 4
