"""The spec that everybody writes first, for models of today and each trainer: files, or a reason.

What stops a plan is the hardware, the model or the trainer: never a value that tunec itself chose.
"""

import pytest
from tests.road.runs import RUNS

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_mapping
from tunec.schemas.models.catalogue import card, card_names
from tunec.targets.registry import REGISTRY, TARGETS

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


TRAVELLED_ELSEWHERE = {
    "launch": "it starts every run of the road",
    "deepspeed": "its file is for a script of the user's; runs under ZeRO start its engine",
    "accelerate": "its file starts the runs under FSDP, where launch writes it",
    "axolotl": "it imports triton, numba and wandb, hundreds of MB; 0.19.0 trained four steps of a "
    "tiny Llama on a CPU by an emitted file, with bf16 and tf32 off; 0.16.1 wrote and rewarded "
    "answers for the four planned steps of `rl: grpo`",
    "llamafactory": "it imports torchaudio, which loads nothing without CUDA's libraries; with an "
    "empty one 0.9.5 trained two ranks of a tiny Llama for the five planned steps on a CPU",
    "ms-swift": "its trainers import what its parser does, and modelscope, scipy and nltk besides",
    "nemo-automodel": "it asks torch for a CUDA device before it loads a model; tests/verify runs "
    "its loader and its classes",
    "unsloth": "it imports triton and bitsandbytes, and asks for a GPU; tests/verify runs its "
    "command as far as the trainer",
    "verl": "it imports ray, and its loader asks for a GPU; tests/verify runs its trainer until a "
    "model is loaded",
    "openrlhf": "its models import FlashAttention, which has no wheel without CUDA; with that and "
    "DeepSpeed's FusedAdam stood in for, 0.11.2 trained two ranks of a tiny Llama for the eight "
    "planned steps on a CPU by emitted bundles, of texts and of pairs",
    "slurm": "tests/clusters submits its jobs to a real controller, with another program to start",
    "kubeflow": "tests/clusters runs the lines of its jobs as pods; no cluster runs here",
    "skypilot": "it rents machines; its own parser reads the task (tests/consumers)",
    "glm4": "its script is in no package, and the model is code of its own repository",
    "minicpm-v": "its script is in no package, and the model is code of its own repository",
    "visualglm": "its script is in no package, and SwissArmyTransformer asks for CUDA",
}
"""Targets without a run of their own, each with the reason."""


def test_every_target_is_travelled_or_says_why_not():
    travelled = {name.partition("@")[0] for run in RUNS for name in run.spec["targets"]}
    assert travelled | TRAVELLED_ELSEWHERE.keys() == set(TARGETS.names())
    assert not travelled & TRAVELLED_ELSEWHERE.keys()


def test_the_runs_are_many():
    assert len(RUNS) >= 30
    assert len({run.name for run in RUNS}) == len(RUNS)
