"""Samples are counted in training data that lies beside the spec, and said where they differ."""

import json

import pytest

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_spec

SPEC = """
tunec: 1
model: llama-3.2-1b
method: lora
data: {{train: {train}, sequence: 128{more}}}
hardware: a100-80g-x1
"""


@pytest.fixture
def loaded(tmp_path):
    """A spec with 40 and 7 records beside it, read after its text is written."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.jsonl").write_bytes(b'{"text": "a"}\n' * 39 + b"\n \n" + b'{"text": "last"}')
    (project / "b.jsonl").write_bytes(b'{"text": "b"}\n' * 7)
    (project / "b.json").write_text(json.dumps([{"text": "b"}] * 7), "utf-8")
    (tmp_path / "outside.jsonl").write_bytes(b'{"text": "c"}\n')

    def load(train, more=""):
        (project / "spec.yaml").write_text(SPEC.format(train=train, more=more), "utf-8")
        return load_spec(project / "spec.yaml")

    return load


@pytest.mark.parametrize(
    ("train", "counted"),
    [
        ("a.jsonl", 40),
        ("[a.jsonl, b.jsonl]", 47),
        ("[{path: a.jsonl, samples: 10}, {path: b.jsonl, times: 3}]", 31),
        ("{path: b.jsonl, samples: 10}", 7),
        ("[a.jsonl, elsewhere.jsonl]", None),
        ("[a.jsonl, trl-lib/Capybara]", None),
        ("b.json", None),
        ("../outside.jsonl", None),
    ],
)
def test_records_are_counted_where_all_of_them_are_there(loaded, train, counted):
    assert loaded(train).counted == counted


@pytest.mark.parametrize(
    ("samples", "is_told"), [(40, False), (41, True), (39, True), (10_000, True), (400, True)]
)
def test_another_number_is_told_and_the_spec_decides(loaded, samples, is_told):
    planned = plan(loaded("a.jsonl", f", samples: {samples}"))
    told = [each for each in planned.diagnostics if each.id == "samples-miscounted"]
    assert [each.help for each in told] == ["write `samples: 40`"] * is_told
    assert planned.plan.data.samples == samples


def test_a_rounded_number_is_not_told(loaded, tmp_path):
    (tmp_path / "project" / "c.jsonl").write_bytes(b'{"text": "c"}\n' * 990)
    assert not plan(loaded("c.jsonl", ", samples: 1k")).diagnostics


def test_what_is_counted_is_offered_and_decides_nothing(loaded):
    planned = plan(loaded("a.jsonl"))
    (told,) = [each for each in planned.diagnostics if each.id == "length-unknown"]
    assert told.help == "write `samples: 40` under `data`, as the files of data.train hold"
    assert planned.plan.data.samples is None
