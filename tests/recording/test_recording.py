"""Recorded answers: what they are a function of, when a program is asked, and what is kept."""

import json
from pathlib import Path

import pytest
from tests.recording import digests, plugin, store
from tests.recording.places import Places
from tests.recording.plugin import Recording
from tests.recording.starts import ROOTS

from tunec.compiler.consumers.environments import prepare

MODULE = "tests/here/test_this.py"
PINS = ("packaging==0.0.1",)


@pytest.fixture
def asked(monkeypatch):
    """What the program was asked; it answers with the question, and with where it worked."""
    seen = []

    def program(environment, script, questions, seconds, root):
        seen.extend(questions)
        return [{"answer": [each, f"{environment.place}/bin"]} for each in questions]

    monkeypatch.setattr(plugin, "_ASK", program)
    return seen


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Answers of this test alone."""
    monkeypatch.setattr(store, "FOLDER", tmp_path / "answers")
    forget()
    yield tmp_path / "answers"
    forget()


def forget():
    store.read.cache_clear()
    store.every.cache_clear()


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setitem(ROOTS, "tunec", tmp_path / "tunec")
    (tmp_path / "tunec").mkdir()
    (tmp_path / "tunec/program.py").write_text("from tunec.beside import VERBS\n")
    (tmp_path / "tunec/beside.py").write_text("VERBS = {}\n")
    digests.source.cache_clear()
    return "tunec.program", tmp_path / "tunec"


def run(mode, script, *questions, pins=PINS, incomplete=()):
    """One session of one module: what it heard, and what it says in the end."""
    forget()
    recording = Recording(mode)
    recording.module = MODULE
    recording.incomplete.update(incomplete)
    name, root = script
    told = recording.replies(prepare(pins), name, list(questions), 1.0, root)
    if mode == "record":
        recording.keep(is_part=False)
    return [each["answer"][0] for each in told], recording


A, B, C = ({"verb": each} for each in "abc")


def test_what_is_recorded_is_not_asked_and_the_rest_of_a_batch_is(script, asked):
    run("record", script, A, B)
    asked.clear()
    heard, recording = run("replay", script, B, C, A)
    assert heard == [B, C, A]
    assert asked == [C]
    assert recording.asked == {MODULE: 1}


def test_what_is_recorded_elsewhere_serves_too(script, asked):
    run("record", script, A)
    asked.clear()
    forget()
    other = Recording("replay")
    other.module = "tests/here/test_other.py"
    other.replies(prepare(PINS), script[0], [A], 1.0, script[1])
    assert asked == []


def test_a_test_that_is_real_asks(script, asked):
    run("record", script, A)
    asked.clear()
    recording = Recording("replay")
    recording.is_real = True
    recording.replies(prepare(PINS), script[0], [A], 1.0, script[1])
    assert asked == [A]


def test_other_packages_another_script_or_question_are_asked_again(script, asked):
    run("record", script, A)
    asked.clear()
    run("replay", script, A, pins=("packaging==0.0.2",))
    run("replay", script, {**A, "steps": 1})
    (script[1] / "beside.py").write_text("VERBS = {'a': None}\n")
    digests.source.cache_clear()
    run("replay", script, A)
    assert asked == [A, {**A, "steps": 1}, A]


def test_what_is_said_of_the_script_changes_nothing(script, asked):
    run("record", script, A)
    asked.clear()
    said = '"""What it does,\nat length."""\n\n# why\nVERBS = {}  # none\n"""Of what."""\n'
    (script[1] / "beside.py").write_text(said)
    digests.source.cache_clear()
    run("replay", script, A)
    assert asked == []


@pytest.mark.parametrize("text", ["VERBS = '# {}'", 'VERBS = """{}"""', '"""{}"""\nV = __doc__'])
def test_texts_that_the_script_uses_are_part_of_it(script, text):
    name, root = script
    found = set()
    for filling in ("a", "b"):
        (root / "beside.py").write_text(text.replace("{}", filling))
        digests.source.cache_clear()
        found.add(digests.source(name, root))
    assert len(found) == 2


def test_what_the_script_does_not_import_changes_nothing(script, asked):
    run("record", script, A)
    asked.clear()
    (script[1] / "other.py").write_text("VERBS = {'a': None}\n")
    digests.source.cache_clear()
    run("replay", script, A)
    assert asked == []


def test_paths_of_this_machine_are_not_kept(script, asked, tmp_path):
    run("record", script, {"file": str(tmp_path / "a")})
    forget()
    (answer,) = store.every().values()
    assert str(tmp_path) not in answer.question
    assert "«environment»/bin" in answer.reply
    other = {"file": str(tmp_path / "a").replace("pytest-of-", "pytest-of-another")}
    asked.clear()
    assert run("replay", script, other)[0] == [other]
    assert asked == []


def test_addresses_and_times_of_one_run_are_not_kept():
    environment = prepare(PINS)
    text = "<object at 0x7f0123456789> of /tmp/tunec-abc/answers"
    named = Places(environment).named(text)
    assert named == "<object at «address»> of «temporary 1»/answers"


def test_what_nobody_asks_any_more_goes_when_the_whole_module_passed(script, asked, folder):
    run("record", script, A, B)
    run("record", script, B, incomplete=[MODULE])
    forget()
    assert len(store.every()) == 2
    run("record", script, B)
    forget()
    assert [json.loads(each.question) for each in store.every().values()] == [B]
    assert list(store.modules()) == [MODULE]


def test_what_no_question_finds_goes_though_a_test_was_skipped(script, asked, folder):
    run("record", script, A, B)
    (script[1] / "beside.py").write_text("VERBS = {'a': None}\n")
    digests.source.cache_clear()
    run("record", script, B, incomplete=[MODULE])
    forget()
    assert [json.loads(each.question) for each in store.every().values()] == [B]


def test_what_is_recorded_is_kept_and_not_asked_again(script, asked, folder):
    run("record", script, A, B)
    asked.clear()
    run("record", script, A, B, C)
    assert asked == [C]
    forget()
    assert len(store.every()) == 3


def test_equal_answers_are_equal_bytes(script, asked, folder):
    run("record", script, A, B)
    (file,) = folder.rglob("*.xz")
    before = file.read_bytes()
    file.unlink()
    run("record", script, B, A)
    assert file.read_bytes() == before


def test_asked_anew_a_difference_is_told(script, asked, monkeypatch):
    run("record", script, A, B)
    assert run("anew", script, A, B)[1].differing == []
    monkeypatch.setattr(plugin, "_ASK", lambda *given: [{"answer": ["b"]}, {"answer": [B, "x"]}])
    _, recording = run("anew", script, A, B)
    assert len(recording.differing) == 2
    assert recording.differing[1].endswith('now \'{"answer": [{"verb": "b"}, "x"]}\'')


def test_a_fault_is_kept_as_a_fault(script, monkeypatch):
    fault = {"fault": "Traceback\nValueError: no", "output": "said"}
    monkeypatch.setattr(plugin, "_ASK", lambda *given: [fault])
    for mode in ("record", "replay"):
        forget()
        recording = Recording(mode)
        recording.module = MODULE
        assert recording.replies(prepare(PINS), script[0], [A], 1.0, script[1]) == [fault]
        recording.keep(is_part=False)


def test_no_answer_is_kept_of_a_module_that_is_gone():
    tests, answers = Path(__file__).parents[1], Path(__file__).parent / "answers"
    kept = [each.relative_to(answers).with_suffix(".py") for each in answers.rglob("*.xz")]
    assert kept
    assert [str(each) for each in kept if not (tests / each).exists()] == []
