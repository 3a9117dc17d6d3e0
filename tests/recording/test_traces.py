"""Traces that tests take themselves: what they are a function of, and when one is taken again."""

from dataclasses import dataclass

import pytest
from tests.recording import digests, store, traces
from tests.recording.plugin import Recording

FILES = {
    "tests/test_it.py": "from beside import X\nfrom tunec.compiler.tracing.steps import run\n"
    "from tunec.compiler.account import account\n",
    "tests/beside.py": "X = 1\n",
    "tunec/compiler/tracing/steps.py": "from tunec.compiler.halves import half\n",
    "tunec/compiler/halves.py": "from tunec.compiler.deep import deep\n",
    "tunec/compiler/deep.py": "deep = 1\n",
    "tunec/compiler/account.py": "account = 1\n",
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A module of tests that traces, with what it imports."""
    for name, text in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(digests, "_PACKAGE", tmp_path / "tunec")
    monkeypatch.setattr(digests, "_TRACING", tmp_path / "tunec/compiler/tracing")
    return tmp_path


def named(tree, question="micro=1", pins=("torch==2.13.0",)):
    digests.tracer.cache_clear()
    return digests.of_trace(pins, tree / "tests/test_it.py", question)


@pytest.mark.parametrize(
    "file",
    [
        "tests/test_it.py",
        "tests/beside.py",
        "tunec/compiler/tracing/steps.py",
        "tunec/compiler/halves.py",
    ],
)
def test_another_tracer_gives_another_trace(tree, file):
    before = named(tree)
    (tree / file).write_text(f"{FILES[file]}CHANGED = True\n")
    assert named(tree) != before


@pytest.mark.parametrize("file", ["tunec/compiler/account.py", "tunec/compiler/deep.py"])
def test_the_account_that_a_trace_judges_changes_none(tree, file):
    before = named(tree)
    (tree / file).write_text("CHANGED = True\n")
    assert named(tree) == before


def test_another_question_or_release_gives_another_trace(tree):
    assert len({named(tree), named(tree, "micro=2"), named(tree, pins=("torch==2.14.0",))}) == 3


@dataclass
class Peak:
    bytes: int


taken = []


@traces.recorded
def peak(micro: int, *, wide: bool = False) -> Peak:
    taken.append((micro, wide))
    return Peak(1000 * micro)


def session(mode, monkeypatch):
    store.read.cache_clear()
    store.every.cache_clear()
    recording = Recording(mode)
    recording.module = "tests/here/test_this.py"
    monkeypatch.setattr(traces.teller, "tell", recording.tell)
    return recording


def test_what_is_recorded_is_told_and_the_rest_is_traced(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "FOLDER", tmp_path / "answers")
    recording = session("record", monkeypatch)
    assert peak(2) == Peak(2000)
    recording.keep(is_part=False)
    taken.clear()
    recording = session("replay", monkeypatch)
    assert (peak(2), peak(3), peak(2, wide=True)) == (Peak(2000), Peak(3000), Peak(2000))
    assert taken == [(3, False), (2, True)]
    recording.is_real = True
    peak(2)
    assert taken[2:] == [(2, False)]


def test_asked_anew_a_difference_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "FOLDER", tmp_path / "answers")
    recording = session("record", monkeypatch)
    peak(2)
    recording.keep(is_part=False)
    changed = session("anew", monkeypatch)
    assert peak(2) == Peak(2000)
    assert changed.differing == []
    (key,) = recording.new[recording.module]
    monkeypatch.setattr(changed, "_recorded", lambda _: store.Answer("", (), "", '{"bytes":1}'))
    peak(2)
    assert key in changed.new[recording.module]
    assert len(changed.differing) == 1


@pytest.fixture(autouse=True)
def forget():
    yield
    store.read.cache_clear()
    store.every.cache_clear()
    digests.tracer.cache_clear()
