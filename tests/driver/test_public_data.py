"""What is known of a data set on the Hub is used: its parts, its samples and its columns."""

import pytest

from tunec.compiler.driver import compile_spec, plan
from tunec.compiler.frontend.load import load_spec
from tunec.targets.registry import REGISTRY

ULTRACHAT = "HuggingFaceH4/ultrachat_200k"


def loaded(folder, train, **more):
    fields = {"train": train, "sequence": 1024, **more}
    said = "\n".join(f"  {name}: {value}" for name, value in fields.items())
    text = f"tunec: 1\nmodel: llama-3.2-1b-instruct\nmethod: lora\ndata:\n{said}\n"
    (folder / "spec.yaml").write_text(text + "hardware: h100-80g-x1\n")
    return load_spec(folder / "spec.yaml")


def missing(folder, train, **more):
    found = plan(loaded(folder, train, **more)).diagnostics
    return [each.message for each in found if each.id == "data-part-missing"]


@pytest.mark.parametrize(
    ("train", "named"),
    [
        (ULTRACHAT, f"{ULTRACHAT} has no split `train`"),
        (f"{ULTRACHAT}::train_sfd", f"{ULTRACHAT} has no split `train_sfd`"),
        (f"{ULTRACHAT}::train_sft+train[:1%]", f"{ULTRACHAT} has no split `train`"),
        ("openai/gsm8k", "openai/gsm8k has no default configuration: it has `main` and `socratic`"),
        ("openai/gsm8k:man", "openai/gsm8k has no configuration `man`"),
    ],
)
def test_a_part_that_is_missing_is_told_of(tmp_path, train, named):
    assert [each[: len(named)] for each in missing(tmp_path, train)] == [named]


@pytest.mark.parametrize(
    "train",
    [f"{ULTRACHAT}::train_sft[:10%]", "openai/gsm8k:main", "tatsu-lab/alpaca", "somebody/unknown"],
)
def test_a_part_that_is_there_is_not(tmp_path, train):
    assert missing(tmp_path, train) == []


def test_evaluation_is_on_the_split_that_is_its_default(tmp_path):
    assert missing(tmp_path, "openai/gsm8k:main", evaluation="openai/gsm8k:main") == []
    found = missing(tmp_path, "tatsu-lab/alpaca", evaluation="tatsu-lab/alpaca")
    assert found == ["tatsu-lab/alpaca has no split `test`: it has `train`"]


@pytest.mark.parametrize(
    ("train", "samples"),
    [
        ("tatsu-lab/alpaca", 52002),
        ("{path: tatsu-lab/alpaca, samples: 1000, times: 2}", 2000),
        ("[tatsu-lab/alpaca, {path: openai/gsm8k, config: main, times: 2}]", 66948),
        ("[tatsu-lab/alpaca, somebody/unknown]", None),
    ],
)
def test_its_samples_are_counted(tmp_path, train, samples):
    planned = plan(loaded(tmp_path, train)).plan
    assert planned.data.samples == samples
    assert (planned.schedule.steps is None) == (samples is None)


def test_its_columns_are_those_of_its_records(tmp_path):
    found = compile_spec(loaded(tmp_path, "tatsu-lab/alpaca"), [REGISTRY.resolve("axolotl")])
    said = [each for each in found.diagnostics if each.id == "data-in-unread-columns"]
    assert [each.help for each in said] == [
        "write `format: alpaca` under `data`, which says what the records are"
    ]
    found = compile_spec(loaded(tmp_path, "Open-Orca/SlimOrca"), [REGISTRY.resolve("trl")])
    assert "E0808" in {each.id for each in found.diagnostics}
    found = compile_spec(loaded(tmp_path, "tatsu-lab/alpaca"), [REGISTRY.resolve("trl")])
    assert "data-in-unread-columns" not in {each.id for each in found.diagnostics}
