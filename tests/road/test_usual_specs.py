"""The spec that everybody writes first, for models of today and each trainer: files, or a reason.

What stops a plan is the hardware, the model or the trainer: never a value that tunec itself chose.
"""

import pytest

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_mapping
from tunec.schemas.models.catalogue import card, card_names
from tunec.targets.registry import REGISTRY

TRAINERS = ("trl", "axolotl", "llamafactory", "unsloth", "ms-swift")
CLUSTERS = ("rtx-4090-x1", "h100-80g-x8")
METHODS = ("lora", "qlora", "full")
MODELS = (
    "Qwen/Qwen3-4B-Instruct-2507",
    "google/gemma-3-4b-it",
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
    "openai/gpt-oss-20b",
)
OF_THE_WORLD = {"E0602", "E0701", "E0702", "E0905"}
"""Not for this model, nothing fits, no layout can run, the trainer does not run it."""


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("model", MODELS)
def test_a_usual_spec_has_files_or_a_reason(model, trainer):
    data = {"train": "train.jsonl", "samples": 5000, "sequence": 2048}
    asked = [REGISTRY.resolve(trainer)]
    for cluster in CLUSTERS:
        for method in METHODS:
            spec = {"tunec": 1, "model": model, "hardware": cluster, "method": method, "data": data}
            found = compile_spec(load_mapping(spec), asked, repairing=False)
            told = {each.id for each in found.diagnostics if each.severity == "error"}
            assert told <= OF_THE_WORLD, (cluster, method)
            assert bool(told) != bool(found.artifacts), (cluster, method)


DENOISERS = tuple(name for name in card_names() if "_class_name" in card(name).config)


@pytest.mark.parametrize("model", DENOISERS)
def test_a_usual_spec_of_a_denoiser_has_files_or_a_reason(model):
    data = {"train": "images", "samples": 500, "resolution": 512}
    asked = [REGISTRY.resolve("simpletuner")]
    base = {"tunec": 1, "model": model, "hardware": "h100-80g-x8", "data": data}
    for method in METHODS:
        found = compile_spec(load_mapping({**base, "method": method}), asked, repairing=False)
        told = {each.id for each in found.diagnostics if each.severity == "error"}
        assert told <= OF_THE_WORLD, method
        assert bool(told) != bool(found.artifacts), method


def files_of(trainer, method, **said):
    spec = {"tunec": 1, "model": "Qwen/Qwen3-8B", "hardware": "h100-80g-x8", "method": method}
    asked = [REGISTRY.resolve(trainer)]
    return compile_spec(load_mapping({**spec, **said}), asked, repairing=False).artifacts


@pytest.mark.parametrize("trainer", ["trl", "axolotl", "llamafactory", "ms-swift"])
@pytest.mark.parametrize("method", ["lora", "full"])
def test_packing_is_asked_for_by_one_word(trainer, method):
    data = {"train": "train.jsonl", "samples": 5000, "sequence": 4096, "packing": True}
    assert files_of(trainer, method, data=data)


@pytest.mark.parametrize("trainer", ["trl", "verl", "ms-swift", "axolotl"])
@pytest.mark.parametrize("method", ["lora", "full"])
def test_rewards_are_asked_for_by_their_function(trainer, method):
    data = {"train": "train.parquet", "samples": 5000, "sequence": 2048}
    reward = "rewards.py:correct" if trainer == "ms-swift" else "rewards.correct"
    assert files_of(trainer, method, data=data, objective={"grpo": {"rewards": [reward]}})


@pytest.mark.parametrize("model", ["openbmb/MiniCPM-V-2_6", "glm-4v-9b"])
def test_images_for_classes_of_a_model_s_own_repository_go_to_trainers_that_know_them(model):
    for trainer, runs in (("trl", False), ("axolotl", False), ("ms-swift", True)):
        data = {"train": "train.jsonl", "samples": 5000, "sequence": 2048}
        assert bool(files_of(trainer, "lora", model=model, data=data)) == runs, trainer
        alone = {**data, "images": {"per_sample": 0}}
        assert files_of(trainer, "lora", model=model, data=alone), trainer


def test_llamafactory_takes_the_template_that_a_spec_names_for_images():
    data = {"train": "train.jsonl", "samples": 5000, "sequence": 2048}
    said = {"model": "numind/NuExtract-2.0-2B", "data": data}
    assert not files_of("llamafactory", "lora", **said)
    for template, runs in (("qwen2_vl", True), ("llama3", False)):
        extra = {"llamafactory": {"template": template}}
        assert bool(files_of("llamafactory", "lora", **said, extra=extra)) == runs
