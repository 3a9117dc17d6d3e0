"""A class of `schemas.frozen` is what `dataclasses` would have made of it."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field

import pytest

from tunec.schemas.frozen import dataclass


def pair(decorate, **options):
    """Two classes made by a decorator: one with positional fields, one with keywords alone."""

    @decorate(frozen=True, slots=True)
    class Layer:
        """Fields of every kind."""

        name: str
        width: int = 4
        tags: list[str] = field(default_factory=list, hash=False)
        note: str = field(default="", compare=False)
        shown: bool = field(default=True, repr=False)
        area: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            object.__setattr__(self, "area", self.width**2)

    @decorate(frozen=True, slots=True, kw_only=True)
    class Options:
        """Keywords alone."""

        depth: int
        scale: float = 1.0

    return Layer, Options


OURS, THEIRS = pair(dataclass), pair(dataclasses.dataclass)


@dataclass(frozen=True, slots=True)
class Place:
    """At module level, where pickle finds it."""

    line: int
    column: int = 1


@pytest.mark.parametrize("at", [0, 1])
def test_signature_parameters_and_fields(at):
    ours, theirs = OURS[at], THEIRS[at]
    mine, stock = (inspect.signature(each).parameters for each in (ours, theirs))
    assert list(mine) == list(stock)
    assert [each.kind for each in mine.values()] == [each.kind for each in stock.values()]
    assert [each.annotation for each in mine.values()] == [e.annotation for e in stock.values()]
    assert repr(ours.__dataclass_params__) == repr(theirs.__dataclass_params__)
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__slots__ == theirs.__slots__
    assert [each.name for each in dataclasses.fields(ours)] == [
        each.name for each in dataclasses.fields(theirs)
    ]


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [(("a",), {}), (("a", 2, ["x"], "n", False), {}), (("a",), {"tags": ["y"], "note": "m"})],
)
def test_instances(arguments, keywords):
    ours, theirs = (each(*arguments, **keywords) for each in (OURS[0], THEIRS[0]))
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert repr(ours) == repr(theirs)
    assert hash(ours) == hash(theirs)
    assert ours == OURS[0](*arguments, **keywords)
    assert ours == dataclasses.replace(ours, note="another")
    assert ours != dataclasses.replace(ours, width=9)
    assert ours != theirs
    assert OURS[0]("a").tags is not OURS[0]("a").tags


@pytest.mark.parametrize(
    ("arguments", "keywords"), [((), {}), (("a", 1, [], "", True, 5), {}), (("a",), {"no": 1})]
)
def test_wrong_arguments(arguments, keywords):
    said = []
    for each in (OURS[0], THEIRS[0]):
        with pytest.raises(TypeError) as fault:
            each(*arguments, **keywords)
        said.append(str(fault.value))
    assert said[0] == said[1]


def test_nothing_can_be_changed():
    for place in (Place(1), OURS[0]("a")):
        name = dataclasses.fields(place)[0].name
        with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(place, name, 2)
        with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(place, name)
        with pytest.raises((FrozenInstanceError, AttributeError)):
            place.other = 1


def test_copies_and_pickles():
    place = Place(3, 7)
    assert copy.copy(place) == copy.deepcopy(place) == pickle.loads(pickle.dumps(place)) == place  # noqa: S301  our own


def test_what_is_unusual_is_left_to_dataclasses():
    @dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        at: int

    @dataclass(frozen=True, slots=True)
    class Child(Place):
        end: int = 0

    @dataclass(slots=True)
    class Open:
        at: int = 0

    assert Ordered(1) < Ordered(2)
    assert Child(1, 2, 3) == Child(1, 2, 3)
    free = Open()
    free.at = 4
    assert free == Open(4)


def test_a_subclass_without_fields_shares_the_methods():
    class Watched(Place):
        pass

    assert Watched(1, 2) == Watched(1, 2)
    assert Watched(1, 2) != Place(1, 2)
    assert repr(Watched(1)).endswith("Watched(line=1, column=1)")
