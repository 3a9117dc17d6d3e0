"""A rule that found nothing is asked again where something that it read differs, and only there."""

from collections.abc import Mapping
from typing import Any

import pytest

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.noted import EVERY_KEY, EVERYTHING, FAULTS, Noted, Notes, Read
from tunec.compiler.lints.replies import Replies, Said
from tunec.compiler.lints.sparing import Sparing
from tunec.compiler.lints.standing import Grounds, Standing
from tunec.compiler.lints.surrounded import MODEL
from tunec.schemas.source import Span

WORLD: Read = ("at", "environment.world")


def is_seven(_: str, value: Any) -> bool:
    return bool(value == 7)


GROUNDS: Mapping[int, tuple[Read, ...]] = {
    0: ((0, "a"),),
    1: ((0, "b"), WORLD),
    2: ((0, EVERY_KEY),),
    3: ((0, EVERYTHING),),
    4: ((0, FAULTS), MODEL),
    5: (),
    6: ((0, is_seven),),
}


def replies(values: Mapping[str, Any], world: int = 1, model: int = 0) -> Replies:
    """Those of a run of one file."""
    span = Span("f", 1, 1, 1, 1)
    root = Node(span, fields={key: Node(span, value) for key, value in values.items()})
    document = Noted(Document("f", "deepspeed", "json", "", root), Notes(), 0)
    run = Sparing((document,), Environment(world=world), {})
    return Replies(Said(run, {}, {}), run.environment, {}, model)


def settled(standing: Standing, on: Replies) -> Standing:
    """The same after each rule that had to be asked found nothing."""
    for place in standing.asked(on):
        standing.settle(place, Grounds.of(GROUNDS[place]), on)
    return standing


@pytest.mark.parametrize(
    ("after", "asked"),
    [
        (replies({"a": 1, "b": 2}), []),
        (replies({"a": 7, "b": 2}), [0, 3, 4, 6]),
        (replies({"a": 1, "b": 7}), [1, 3, 4, 6]),
        (replies({"a": 1, "b": 2, "c": 3}), [2, 3, 4]),
        (replies({"b": 2}), [0, 2, 3, 4]),
        (replies({"b": 2, "a": 1}), [2]),
        (replies({"a": 1, "b": 2}, world=8), [1]),
        (replies({"a": 1, "b": 2}, model=1), [4]),
    ],
)
def test_who_read_what_differs_is_asked(after: Replies, asked: list[int]) -> None:
    before = replies({"a": 1, "b": 2})
    standing = settled(Standing(set(GROUNDS)), before)
    assert standing.asked(before) == []
    assert standing.asked(after) == asked


def test_files_that_come_again_are_looked_at_no_more() -> None:
    first, second = replies({"a": 1, "b": 2}), replies({"a": 7, "b": 2}, world=8)
    standing = settled(Standing(set(GROUNDS)), first)
    here = standing.here()
    settled(standing, second)
    elsewhere = Replies(first.said, second.run.environment, {}, 0)
    assert here.asked(elsewhere) == [1]
    assert standing.asked(elsewhere) == [0, 3, 4, 6]


def test_who_finds_something_is_always_asked() -> None:
    run = replies({"a": 1, "b": 2})
    standing = settled(Standing(set(GROUNDS)), run)
    standing.unsettle(5)
    assert standing.asked(run) == [5]
    assert standing.here().asked(run) == [5]


def test_a_part_that_is_not_there_is_a_reply_like_others() -> None:
    found = replies({})
    assert found["at", "environment.weakest.memory"] is found["at", "environment.cluster.nodes"]
