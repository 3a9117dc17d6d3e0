"""What was made is found again by the same facts and no others, and caches can be emptied."""

import gc

import pytest

from tunec.schemas.caches import BoundedCache, ByIdentity, cached, clear, forget, sizes


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


def test_what_holds_much_is_emptied():
    asked = []

    @cached(8)
    def small(at: int) -> int:
        asked.append(at)
        return at

    @cached(8)
    def large(at: int) -> int:
        asked.append(at)
        return at

    def ask() -> list[int]:
        asked.clear()
        small(0)
        for at in range(10, 15):
            large(at)
        return list(asked)

    assert ask() == [0, 10, 11, 12, 13, 14]
    assert ask() == []
    forget(more_than=1)
    assert ask() == [10, 11, 12, 13, 14]
    forget(more_than=0)
    assert ask() == [0, 10, 11, 12, 13, 14]


def test_what_is_asked_least_goes_first():
    found = cached(2)(lambda at: [at])
    first = found(1)
    assert found(1) is first
    found(2)
    found(3)
    assert found(1) is not first


def test_what_lasts_is_not_forgotten_with_a_spec():
    every, lasting = cached()(lambda at: [at]), cached(8, lasting=True)(lambda at: [at])
    first = [every(1), lasting(1)]
    forget(more_than=0)
    assert first == [every(1), lasting(1)]
    assert first[0] is every(1)
    assert first[1] is lasting(1)
    clear()
    assert first[0] is not every(1)
    assert first[1] is not lasting(1)


def test_each_cache_is_in_the_list_by_its_name():
    function = cached(8)(str)
    by_object = ByIdentity("test.objects", 2, len)
    by_facts = BoundedCache[int]("test.facts", 2)
    function(1)
    by_object.of([1])
    by_facts.of(([1],), (), lambda: 1)
    found = sizes()
    assert found["builtins.str"] == found["test.objects"] == found["test.facts"] == 1
    clear()
    assert not {"builtins.str", "test.objects", "test.facts"} & sizes().keys()


def test_an_object_is_asked_once_and_begins_anew_where_there_are_many():
    asked = []
    kept = ByIdentity("test.asked", 2, lambda each: asked.append(each) or len(asked))
    one, two, three = [], [], []
    assert [kept.of(each) for each in (one, one, two, three, one)] == [1, 1, 2, 3, 4]
