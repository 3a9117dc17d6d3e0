"""What the page shows, without a browser: no field of its form can break the spec."""

import pytest
import yaml
from docs import try_out
from docs.tryout.answers import answer, spec_text
from hypothesis import given
from hypothesis import strategies as st

FIELDS = {
    "model": "llama-3.1-8b",
    "method": "lora",
    "hardware": "a100-80g-x8",
    "sequence": "2048",
    "samples": "10000",
    "memory": "72GiB",
    "target": "trl",
}


def test_the_spec_says_the_fields():
    assert yaml.safe_load(spec_text(FIELDS)) == {
        "tunec": 1,
        "model": "llama-3.1-8b",
        "method": "lora",
        "data": {"train": "train.jsonl", "samples": 10000, "sequence": 2048},
        "hardware": "a100-80g-x8",
        "budget": {"gpu_memory": "72GiB"},
        "targets": ["trl"],
    }


@given(st.fixed_dictionaries({name: st.text() for name in FIELDS}))
def test_what_is_written_into_a_field_stays_in_it(fields):
    found = yaml.safe_load(spec_text(fields))
    assert set(found) <= {"tunec", "model", "method", "data", "hardware", "budget", "targets"}
    assert str(found["model"] or "").strip() == fields["model"].strip()
    assert set(found["data"]) <= {"train", "samples", "sequence"}


def test_a_plan_has_its_verdict_charts_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = answer(FIELDS)
    assert found["fits"]
    assert found["verdict"].startswith("fits: ")
    assert found["memory"].count("<svg") == 2
    assert [each["name"] for each in found["files"]][-2:] == ["run.sh", "requirements.txt"]
    assert found["faults"].startswith("note[loss-over-every-token]: trl computes the loss")
    assert found["faults"].endswith("\n\n1 note\n")


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("model", "lama-3.1-8b", "did you mean `llama-3.1-8b`"),
        ("hardware", "p100-x1", "error[E0701]: nothing fits"),
        ("sequence", "-1", "data.sequence"),
        ("target", "nonsense", "nonsense"),
        ("model", "", "error[E0305]"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, monkeypatch, field, value, told):
    monkeypatch.chdir(tmp_path)
    method = "full" if field == "hardware" else "lora"
    found = answer(FIELDS | {"memory": "", "method": method, field: value})
    assert not found["fits"]
    assert told in found["faults"]
    assert found["files"] == []


def test_the_form_offers_what_there_is():
    names = try_out.names()
    assert {"llama-3.1-8b", "qwen3-8b"} <= set(names["models"])
    assert {"p4d.24xlarge", "rtx-4090-x2"} <= set(names["machines"])
    assert "trl" in names["targets"]
