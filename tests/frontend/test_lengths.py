"""A file of lengths that `tunec data` wrote: read, refused where torn, told where stale."""

import hashlib
import json

import pytest

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_spec

SPEC = """
tunec: 1
model: llama-3.2-1b
method: lora
data: {{train: {train}, sequence: 128, lengths: measured/lengths.json, packing: true}}
hardware: a100-80g-x1
"""
DATA = b'{"text": "a"}\n' * 40


def kept(**changes):
    file = {
        "path": "../train.jsonl",
        "bytes": len(DATA),
        "sha256": hashlib.sha256(DATA).hexdigest(),
        "samples": 40,
    }
    tokenizer = {"model": "meta-llama/Llama-3.2-1B", "sha256": "0" * 64}
    found = {"tunec_lengths": 1, "files": [file], "tokenizer": tokenizer, "form": "text"}
    return {**found, "counts": [[50, 30], [100, 10]], **changes}


def loaded(folder, found, data=DATA, train="train.jsonl"):
    (folder / "measured").mkdir()
    (folder / "measured" / "lengths.json").write_text(json.dumps(found), "utf-8")
    (folder / "train.jsonl").write_bytes(data)
    (folder / "spec.yaml").write_text(SPEC.format(train=train), "utf-8")
    return load_spec(folder / "spec.yaml")


def test_steps_follow_from_it(tmp_path):
    found = loaded(tmp_path, kept())
    assert found.diagnostics == ()
    decided = plan(found).plan
    assert decided.data.samples == 40
    assert decided.schedule.steps is not None


def test_lengths_by_characters_give_an_estimate(tmp_path):
    decided = plan(loaded(tmp_path, kept(tokenizer={"model": "", "sha256": None}))).plan
    assert decided.schedule.steps is None
    assert decided.schedule.estimated_steps


@pytest.mark.parametrize("data", [DATA + b"\n", DATA.replace(b"a", b"b")])
def test_other_data_are_told(tmp_path, data):
    (found,) = loaded(tmp_path, kept(), data).diagnostics
    assert (found.id, found.severity) == ("lengths-stale", "warning")
    assert "`../train.jsonl` is not the file that was measured" in found.message


def test_data_that_are_not_here_are_not_told(tmp_path):
    loaded(tmp_path, kept())
    (tmp_path / "train.jsonl").unlink()
    assert load_spec(tmp_path / "spec.yaml").diagnostics == ()


def test_other_names_are_told(tmp_path):
    of_another = kept(tokenizer={"model": "gpt2", "sha256": "0" * 64})
    said = [each.message for each in loaded(tmp_path, of_another, train="b.jsonl").diagnostics]
    assert len(said) == 2
    assert "the tokenizer of gpt2, and the model is llama-3.2-1b" in said[0]
    assert "which data.train does not name" in said[1]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"tunec_lengths": 2}, "tunec_lengths: input should be 1"),
        ({"counts": [[50, 0]]}, "counts.0.1: input should be greater than 0"),
        ({"counts": [[50, 41]]}, "counts has 41 samples, and files have 40"),
        ({"order": [3, 4]}, "order has 2 samples, and files have 40"),
        ({"more": 1}, "more: extra inputs are not permitted"),
    ],
)
def test_a_torn_file_is_refused(tmp_path, changes, what):
    found = loaded(tmp_path, kept(**changes))
    assert found.spec is None
    assert [each.id for each in found.diagnostics] == ["E0305"]
    assert what in found.diagnostics[0].message
