"""A trainer that also trains what users say is told of, as other trainers take answers alone."""

import json
from pathlib import Path

import pytest

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_text
from tunec.targets.registry import REGISTRY

CHAT = {"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]}
PAIR = {"prompt": "1 + 1?", "completion": "2"}


def notes(folder: Path, *targets: str, more: str = "", record: object = None):
    if record is not None:
        (folder / "train.jsonl").write_text(json.dumps(record), "utf-8")
    text = (
        "tunec: 1\nmodel: qwen3-0.6b\nmethod: lora\nhardware: a100-80g-x1\n"
        f"data: {{train: train.jsonl, samples: 1k, sequence: 512}}\n{more}"
    )
    asked = [REGISTRY.resolve(each) for each in targets]
    found = compile_spec(load_text(text, "spec.yaml", base=folder), asked)
    assert found.ok, found.diagnostics
    return [each for each in found.diagnostics if each.id == "loss-over-every-token"]


@pytest.mark.parametrize(
    ("target", "key"),
    [
        ("trl", "data.loss_on=answers"),
        ("unsloth", "data.loss_on=answers"),
        ("trl@0.17.0", None),
    ],
)
def test_every_token_is_told_of_with_the_key_for_answers(target, key, tmp_path):
    (note,) = notes(tmp_path, target, record=CHAT)
    assert (note.severity, note.notes) == ("note", ())
    assert (key is None) == (note.help is None)
    assert key is None or f"`--set {key}`" in note.help


@pytest.mark.parametrize("target", ["axolotl", "llamafactory", "ms-swift", "nemo-automodel"])
def test_answers_alone_are_not(target, tmp_path):
    assert notes(tmp_path, target, record=CHAT) == []


@pytest.mark.parametrize(
    ("record", "more"),
    [
        (PAIR, ""),
        (CHAT, "extra: {trl: {assistant_only_loss: true}}\n"),
        (CHAT, "allow: {loss-over-every-token: meant so}\n"),
    ],
)
def test_what_is_no_conversation_or_meant_so_is_not(record, more, tmp_path):
    assert notes(tmp_path, "trl", record=record, more=more) == []


def test_speakers_of_data_that_is_not_read_are_told_of(tmp_path):
    """Those of ShareGPT's records would reach the chat template as they are."""
    (note,) = notes(tmp_path, "trl")
    assert "human and gpt" in note.notes[0]
