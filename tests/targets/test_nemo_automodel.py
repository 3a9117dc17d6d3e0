"""NeMo AutoModel: what its recipe was seen to do when it trained, and what it is told for that.

Small random models of 19 families were trained on a CPU by releases 0.5.0 to 0.7.0, with what asks
for a GPU answered: 1 and 2 ranks, in full and by adapters, of conversations and of columns.
"""

from typing import Any

import pytest
import yaml
from packaging.version import Version

from tunec.compiler.driver import Compiled, compile_spec
from tunec.compiler.frontend.load import load_text
from tunec.targets.nemo_automodel.packages import RELEASES
from tunec.targets.registry import TARGETS

BASE = {
    "tunec": 1,
    "model": "llama-3.2-1b-instruct",
    "method": "lora",
    "data": {"train": "train.jsonl", "samples": 1000, "sequence": 512},
    "hardware": "a100-80g-x1",
}
HELD_OUT = {"data": {**BASE["data"], "evaluation": "dev.jsonl"}}
TWO = {"hardware": "a100-80g-x2"}
DORA = {"method": {"lora": {"dora": True}}}
LOADER = "torchdata.stateful_dataloader.StatefulDataLoader"


def compiled(changes: dict[str, Any], release: str = RELEASES[-1]) -> Compiled:
    target, _ = TARGETS.resolve("nemo-automodel")
    text = yaml.safe_dump({**BASE, **changes})
    return compile_spec(load_text(text, targets=TARGETS.names()), [(target, Version(release))])


def written(changes: dict[str, Any], release: str = RELEASES[-1]) -> dict[str, Any]:
    made = compiled(changes, release)
    assert made.ok, [each.message for each in made.diagnostics]
    (file,) = made.artifacts["nemo-automodel"]
    document: dict[str, Any] = yaml.safe_load(file.text)
    return document


def test_the_first_release_builds_the_loaders_that_the_file_names():
    document = written(HELD_OUT, "0.5.0")
    assert [document[name]["_target_"] for name in ("dataloader", "validation_dataloader")] == [
        LOADER,
        LOADER,
    ]
    assert document["validation_dataloader"]["collate_fn"] == document["dataloader"]["collate_fn"]
    assert "validation_dataloader" not in written({}, "0.5.0")


@pytest.mark.parametrize("release", RELEASES[1:])
def test_later_releases_build_their_own_loaders(release):
    document = written(HELD_OUT, release)
    assert "_target_" not in document["dataloader"]
    assert "validation_dataloader" not in document


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("model", "is_other"), [("mistral-7b-v0.3", True), ("qwen2.5-7b", False)])
def test_texts_are_split_as_they_were_counted(release, model, is_other):
    document = written({"model": model, **HELD_OUT}, release)
    said = {"pretrained_model_name_or_path": document["model"]["pretrained_model_name_or_path"]}
    for section in ("dataset", "validation_dataset"):
        expected = {**said, "force_default": True} if is_other else None
        assert document[section].get("tokenizer") == expected


@pytest.mark.parametrize(
    ("samples", "world", "steps"),
    [(13, 2, 6), (14, 2, 7), (13, 1, 13), (41, 8, 5)],
)
def test_samples_that_do_not_divide_are_left_out(samples, world, steps):
    data = {**BASE["data"], "samples": samples}
    changes = {"data": data, "hardware": f"a100-80g-x{world}", "batch": {"global": world}}
    made = compiled({**changes, "method": "full", "pin": {"batch.micro": 1}})
    plan = made.planned.plan
    assert plan is not None
    assert plan.schedule.steps == steps


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({**TWO, **DORA}, "magnitudes of DoRA"),
        ({"model": "phi-3-mini"}, "PEFT loads the adapter without"),
        ({"model": "glm-4-9b-0414"}, "PEFT loads the adapter without"),
        ({"model": "gpt2"}, "Conv1D"),
    ],
)
@pytest.mark.parametrize("release", RELEASES)
def test_adapters_that_come_to_nothing_are_refused(changes, said, release):
    errors = [each for each in compiled(changes, release).diagnostics if each.severity == "error"]
    assert [each.id for each in errors] == ["E0905"]
    assert said in errors[0].message
    assert errors[0].help


@pytest.mark.parametrize(
    "changes",
    [
        DORA,
        {**TWO, "method": {"qlora": {"dora": True}}},
        {**TWO, "method": "lora"},
        {"model": "phi-3-mini", "method": "full"},
        {"model": "phi-3-mini", "method": {"lora": {"targets": ["o_proj", "down_proj"]}}},
        {"model": "gpt2", "method": "full"},
    ],
)
def test_other_adapters_are_written(changes):
    written({**changes, "pin": {"activation_checkpointing.mode": "none"}})


@pytest.mark.parametrize(
    ("release", "often", "is_said"),
    [
        ("0.6.0", {"evaluations": 2, "checkpoints": 5}, True),
        ("0.6.0", {"evaluations": 4, "checkpoints": 2}, False),
        ("0.7.0", {"evaluations": 2, "checkpoints": 5}, False),
    ],
)
def test_evaluations_at_checkpoints_are_noted(release, often, is_said):
    notes = {each.id for each in compiled({**HELD_OUT, "train": often}, release).diagnostics}
    assert ("evaluated-at-checkpoints" in notes) is is_said
