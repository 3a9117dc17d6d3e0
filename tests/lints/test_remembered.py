"""What rules find is kept by what they read, and by nothing else."""

import pytest
from tests.small import SPEC

from tunec.compiler.driver import plan
from tunec.compiler.fleet.emission import Emissions
from tunec.compiler.frontend.load import load_text
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.noted import EVERY_KEY, Noted, Notes
from tunec.compiler.lints.remembered import _Memory
from tunec.schemas.source import Span
from tunec.targets.registry import TARGETS


@pytest.fixture
def noted() -> tuple[Noted, Notes]:
    """A document of two keys, and what is noted of it."""
    span, notes = Span("f", 1, 1, 1, 1), Notes()
    root = Node(span, fields={"a": Node(span, 1), "b": Node(span, {})})
    return Noted(Document("f", "deepspeed", "json", "", root), notes, 0), notes


def test_to_walk_through_keys_is_not_to_read_their_values(noted: tuple[Noted, Notes]) -> None:
    document, notes = noted
    places = dict(document.found.items())
    assert list(notes.read) == [(0, EVERY_KEY)]
    assert places["a"].value == 1
    assert list(notes.read) == [(0, EVERY_KEY), (0, "a")]
    assert places["a"] == document.get("a")
    assert document.get("a") == places["a"]
    assert places["a"] != places["b"]


def test_documents_differ_in_what_they_say(noted: tuple[Noted, Notes]) -> None:
    document, _ = noted
    assert [document.told(key) for key in ("a", "b", "c")] == ["1", "{}", None]


def test_to_look_for_a_value_is_to_read_which_keys_have_it(noted: tuple[Noted, Notes]) -> None:
    document, notes = noted
    assert list(document.where(_is_one)) == ["a"]
    assert list(notes.read) == [(0, _is_one), (0, "a")]
    assert document.told(_is_one) == ("a",)
    assert list(document.tests) == [_is_one]


def _is_one(_: str, value: object) -> bool:
    return value == 1


def test_a_spec_profits_from_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    judge = _Memory.judge
    monkeypatch.setattr(
        _Memory, "judge", lambda self, *given: judged.append(self.name) or judge(self, *given)
    )
    emissions, asked = Emissions(), TARGETS.resolve("deepspeed")
    counts = []
    for spec in (SPEC, SPEC.replace("lora", "{lora: {rank: 64}}")):
        planned = plan(load_text(spec), [asked])
        assert planned.plan is not None
        assert planned.facts is not None
        of = planned.facts, planned.plan
        files, _ = emissions.emit(spec, asked, of[1], of[0].versions, ("h",))
        emissions.objections(asked, files, *of)
        counts.append(len(judged))
    assert counts[0] > 100
    assert counts[1] - counts[0] < counts[0] / 4
