"""The configuration and split of a data set on the Hub, as each trainer is told them."""

import json

import pytest
import yaml
from tests.small_spec import SPEC

import tunec
from tunec.compiler.frontend.load import load_text
from tunec.schemas.data_paths import Chosen, chosen

_CHAT = "HuggingFaceH4/ultrachat_200k"
_PARTS = {
    "train": {"path": _CHAT, "config": "default", "split": "train_sft"},
    "evaluation": {"path": _CHAT, "split": "test_sft"},
}


def spec(data: dict) -> str:
    """A small spec of such data, on one device."""
    small = yaml.safe_load(SPEC) | {"hardware": "a100-80g-x1"}
    return yaml.safe_dump(small | {"data": {**small["data"], **data}})


def compiled(target: str, data: dict):
    text = spec(data)
    return tunec.compile(text, targets=[target])


def written(target: str, data: dict, file: str) -> dict:
    made = compiled(target, data)
    assert made.ok, [each.message for each in made.diagnostics]
    return next(each for each in made.artifacts[target] if each.name == file).values


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("openai/gsm8k", Chosen("openai/gsm8k")),
        ("openai/gsm8k:main", Chosen("openai/gsm8k", "main")),
        ("a/b::train[:10%]", Chosen("a/b", None, "train[:10%]")),
        ("samples.py:get", Chosen("samples.py:get")),
        ("gs://a/b:c", Chosen("gs://a/b:c")),
        ("./a/b:c", Chosen("./a/b:c")),
    ],
)
def test_a_name_is_taken_apart(path, parts):
    assert chosen(path) == parts
    assert str(parts) == path


def test_trl_is_told_both():
    told = written("trl", _PARTS, "sft.yaml")
    assert told["dataset_name"] == _CHAT
    assert told["dataset_config"] == "default"
    assert (told["dataset_train_split"], told["dataset_test_split"]) == ("train_sft", "test_sft")


def test_axolotl_is_told_both():
    told = written("axolotl", _PARTS, "axolotl.yaml")
    (train,), (test,) = told["datasets"], told["test_datasets"]
    assert (train["path"], train["name"], train["split"]) == (_CHAT, "default", "train_sft")
    assert (test["path"], test["name"], test["split"]) == (_CHAT, "default", "test_sft")


def test_llamafactory_is_told_both():
    told = written("llamafactory", _PARTS, "dataset_info.json")
    train, test = told["train"], told["evaluation"]
    assert (train["subset"], train["split"]) == ("default", "train_sft")
    assert (test["subset"], test["split"]) == ("default", "test_sft")


def test_ms_swift_is_told_the_configuration():
    told = written("ms-swift", {"train": {"path": _CHAT, "config": "a"}}, "ms-swift.yaml")
    assert told["dataset"] == [f"{_CHAT}:a"]
    assert "custom_dataset_info" not in told


def test_ms_swift_gets_a_name_for_each_part_of_another_split():
    told = written("ms-swift", _PARTS, "ms-swift.yaml")
    parts = [part for text in told["custom_dataset_info"] for part in json.loads(text)]
    assert told["dataset"] == ["train"]
    assert told["val_dataset"] == ["evaluation"]
    assert [(part["dataset_name"], part["hf_dataset_id"], part["split"]) for part in parts] == [
        ("train", _CHAT, ["train_sft"]),
        ("evaluation", _CHAT, ["test_sft"]),
    ]


def test_ms_swift_evaluates_on_the_split_of_a_folder_that_it_trains_on_nowhere():
    made = compiled("ms-swift", {"train": "data/", "evaluation": "data/"})
    assert [each.id for each in made.diagnostics if each.severity == "error"] == ["E0905"]


@pytest.mark.parametrize("target", ["unsloth", "openrlhf"])
def test_others_refuse_a_configuration_with_a_reason(target):
    made = compiled(target, {"train": {"path": _CHAT, "config": "a"}})
    found = [each.id for each in made.diagnostics if each.severity == "error"]
    assert found == ["E0905"]


def test_a_file_has_no_split():
    text = spec({"train": {"path": "a.jsonl", "split": "train"}})
    found = [each.id for each in load_text(text).diagnostics if each.severity == "error"]
    assert found == ["E0308"]


def test_data_that_could_be_loaded_without_the_evaluation_s_is_no_second_fault():
    made = compiled("trl", {"train": "a/b", "evaluation": "held.jsonl"})
    (found,) = [each for each in made.diagnostics if each.severity == "error"]
    assert "data.evaluation" in found.message
