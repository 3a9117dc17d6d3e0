"""What jobs install: the trainer that is asked for, and releases that go together."""

import pytest
from packaging.version import Version

import tunec
from tunec.targets.launch.node_setup import (
    installed_packages,
    installed_torch,
    packages_line,
    torch_line,
)
from tunec.targets.registry import REGISTRY

SPEC = {
    "tunec": 1,
    "model": "qwen2.5-7b",
    "method": "lora",
    "data": {"train": "train.jsonl", "samples": 10_000, "sequence": 1536},
    "hardware": "a100-80g-x4",
}
PARQUET = {**SPEC, "data": {**SPEC["data"], "train": "train.parquet"}}
REWARDS = {"grpo": {"rewards": ["rewards.correct"], "samples": 8, "completion": 1024}}
REWARDED_IN_PROCESS = {"grpo": {**REWARDS["grpo"], "generator": "vllm_colocate"}}
TRAINERS = {
    "axolotl": SPEC,
    "llamafactory": {**SPEC, "engine": "deepspeed"},
    "ms-swift": SPEC,
    "nemo-automodel": SPEC,
    "openrlhf": SPEC,
    "unsloth": {**SPEC, "hardware": "a100-80g-x1"},
    "verl": PARQUET,
    "trl": SPEC,
}

USUAL = {"llamafactory": "2.9.1"}
"""The torch of adapters under DeepSpeed, where a trainer brings transformers 4."""


def packages(spec, target: str, **engine: str) -> tuple[dict[str, str], str | None]:
    """Releases by package, and the torch, of the job of a spec."""
    if engine:
        spec = {**spec, "objective": {"grpo": {**REWARDS["grpo"], **engine}}}
    result = tunec.plan(spec, targets=[target, "kubeflow"])
    assert result.ok, [each.message for each in result.diagnostics]
    named = (each.partition("==")[::2] for each in result.plan["job.packages"])
    return {name.partition("[")[0]: each for name, each in named}, result.plan["job.torch"]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_job_installs_the_trainer_in_the_releases_that_it_takes(trainer):
    target = REGISTRY[trainer]
    for release in (target.releases[-1], target.latest):
        found, torch = packages(TRAINERS[trainer], f"{trainer}@{release}")
        assert found[target.package] == release
        installed_releases = target.companions(Version(release))
        assert installed_releases["transformers"] == found["transformers"]
        for name in installed_releases.keys() & found.keys():
            assert found[name] in (installed_releases[name], ""), name
        assert torch is not None
        assert torch.startswith(installed_releases.get("torch", USUAL.get(trainer, "2.13.0")))


@pytest.mark.parametrize(
    ("trainer", "engine", "torch"),
    [
        ("axolotl@0.19.0", "vllm==0.20.2", "2.11.0"),
        ("axolotl@0.16.1", "vllm==0.11.0", "2.8.0"),
        ("ms-swift@4.6.0", "vllm==0.31.0", "2.13.0"),
        ("verl@0.9.1", "vllm==0.24.0", "2.11.0"),
        ("verl@0.9.1", "sglang==0.5.14", "2.11.0"),
        ("verl@0.8.0", "sglang==0.5.8", "2.9.1"),
        ("trl@1.16.0", "vllm==0.30.0", "2.13.0"),
    ],
)
def test_an_engine_that_writes_answers_brings_its_torch(trainer, engine, torch):
    name, _, release = engine.partition("==")
    spec = PARQUET if trainer.startswith("verl") else SPEC
    found, taken = packages(spec, trainer, generator=f"{name}_colocate")
    assert found[name] == release
    assert taken is not None
    assert taken.startswith(torch)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_tracker_is_installed_where_the_run_reports_to_one(trainer):
    spec = {**TRAINERS[trainer], "train": {"report_to": ["wandb"]}}
    assert "wandb" in packages(spec, trainer)[0]
    assert "wandb" not in packages(TRAINERS[trainer], trainer)[0]


@pytest.mark.parametrize(
    ("target", "model", "imported"),
    [
        ("ms-swift", "qwen2.5-vl-7b", "qwen_vl_utils>=0.0.6"),
        ("ms-swift", "Qwen/Qwen3-VL-8B-Instruct", "qwen_vl_utils>=0.0.14"),
        ("ms-swift", "openbmb/MiniCPM-V-2_6", "timm"),
        ("trl", "smolvlm2-2.2b", "num2words"),
        ("glm4", "glm-4-9b-0414", "rouge_chinese"),
    ],
)
def test_what_a_model_or_a_script_imports_besides_is_installed(target, model, imported):
    assert imported in packages({**SPEC, "model": model}, target)[0]
    assert imported not in packages(SPEC, "trl")[0]


def test_adapters_come_in_the_release_that_goes_with_the_trainer():
    for release in REGISTRY["trl"].releases:
        assert packages(SPEC, f"trl@{release}")[0]["peft"], release


@pytest.mark.parametrize("torch", ["2.13.0+cu130", "2.13.0+cu126"])
def test_torch_comes_with_the_torchvision_of_its_build(torch):
    """llamafactory 0.9.5 requires a torchvision: its newest, alone, brings another torch."""
    text = torch_line(tunec.plan(SPEC, targets=["trl"]).plan.with_values({"job.torch": torch}))
    assert text.split("torch==")[1].split()[1] == "torchvision"
    assert installed_torch(text) == torch
    assert installed_packages(text) == ()


@pytest.mark.parametrize(
    ("release", "held"), [("4.4.1", ""), ("4.5.2", "5.18.0"), ("4.10.1", "5.18.0")]
)
def test_simpletuner_comes_with_a_transformers_whose_names_it_imports(release, held):
    """4.5 to 4.10.1 import a name that 5.23 no longer has, and allow every later one."""
    pictures = {"train": "pictures", "samples": 1000, "resolution": 1024}
    spec = {**SPEC, "model": "flux.1-dev", "data": pictures}
    assert packages(spec, f"simpletuner@{release}")[0].get("transformers", "") == held


@pytest.mark.parametrize(
    ("target", "changed", "torch"),
    [
        ("huggingface@4.57", {}, "2.9.1+cu128"),
        ("huggingface@4.57", {"hardware": "v100-32g-x4"}, "2.9.1+cu128"),
        ("llamafactory", {"model": "Qwen/Qwen2.5-VL-7B-Instruct"}, "2.8.0+cu128"),
        ("huggingface@4.57", {"engine": "ddp"}, "2.13.0+cu130"),
        ("huggingface@4.57", {"method": "full"}, "2.13.0+cu130"),
        ("huggingface@4.57", {"software": {"torch": "2.11.0"}}, "2.11.0+cu130"),
        ("huggingface", {}, "2.13.0+cu130"),
    ],
)
def test_adapters_get_a_torch_with_which_deepspeed_and_transformers_4_train(target, changed, torch):
    """A run with torch 2.13 ends in its first step, and one with 2.9.1 does not."""
    spec = {**SPEC, "engine": "deepspeed", **changed}
    for targets in ([target], [target, "launch"]):
        assert tunec.plan(spec, targets=targets).plan["job.torch"] == torch


def test_a_torch_with_which_adapters_fail_is_refused():
    spec = {**SPEC, "engine": "deepspeed", "software": {"torch": "2.11.0"}}
    refused = tunec.compile(spec, targets=["huggingface@4.57"])
    assert "schedule-of-a-lost-group" in {each.id for each in refused.diagnostics}


@pytest.mark.parametrize(
    ("target", "changed", "torch"),
    [
        ("huggingface@4.57", {"software": {"torch": "2.11.0"}}, "2.11.0"),
        ("ms-swift@4.0", {"objective": {"grpo": {"rewards": ["accuracy"]}}}, "2.11.0"),
        ("huggingface@4.57", {}, "2.9.1"),
    ],
)
def test_the_search_leaves_deepspeed_where_the_torch_is_one_with_which_adapters_fail(
    target, changed, torch
):
    """What is installed is named by the spec, or pinned by the engine that writes answers."""
    pins = {"zero.stage": 1} if torch == "2.9.1" else {}
    engine = {"generation.engine": "vllm_colocate"} if "objective" in changed else {}
    compiled = tunec.compile({**SPEC, **changed, "pin": {**pins, **engine}}, targets=[target])
    assert compiled.ok, [each.message for each in compiled.diagnostics]
    plan = compiled.planned.plan
    assert plan.job.torch.partition("+")[0] == torch
    assert (plan.parallel.engine == "deepspeed") == (torch == "2.9.1")


def test_a_release_of_torch_that_the_spec_names_stays():
    spec = {**SPEC, "software": {"torch": "2.12.1"}}
    assert packages(spec, "axolotl@0.16.1")[1] == "2.12.1+cu130"


def test_what_is_compiled_against_torch_is_built_without_isolation():
    plan = tunec.plan(SPEC, targets=["openrlhf", "kubeflow"]).plan
    asked = ("a==1", "flash-attn==2.8.3", "b")
    text = packages_line(plan.with_values({"job.packages": asked}))
    *_, tools, built, last = text.splitlines()
    assert tools == "pip install --quiet ninja packaging psutil setuptools wheel"
    assert built == "pip install --quiet --no-build-isolation flash-attn==2.8.3"
    assert last == "pip install --quiet b"
    assert installed_packages(text) == asked
    assert plan["job.packages"][0] == "flash-attn==2.8.3"


@pytest.mark.parametrize("release", ["4.0.4", "4.3.2", "4.6.0"])
def test_rewards_bring_what_their_trainer_imports(release):
    objective = {"grpo": {"rewards": ["accuracy"], "generator": "transformers"}}
    found, _ = packages({**SPEC, "objective": objective}, f"ms-swift@{release}")
    assert "vllm" not in found
    assert "msgspec" in found
    assert "msgspec" not in packages(SPEC, f"ms-swift@{release}")[0]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("release", "imported"),
    [("0.8.0", "flash-attn"), ("0.9.0", "TransferQueue"), ("0.9.1", "TransferQueue")],
)
def test_rewards_bring_what_verl_imports_for_them_alone(release, imported, engine):
    """Without them `main_ppo` ends with ModuleNotFoundError; its wheel requires none of them."""
    rewarded = packages(PARQUET, f"verl@{release}", generator=f"{engine}_colocate")[0]
    names = {name.partition(">")[0] for name in rewarded}
    further = {"flash-attn", "TransferQueue", "cachetools"}
    assert names & further == {imported, "cachetools"}
    assert not further & packages(PARQUET, f"verl@{release}")[0].keys()


def test_flash_attention_is_installed_once():
    rewarded = {**PARQUET, "attention": "flash_attention_2", "objective": REWARDED_IN_PROCESS}
    listed = tunec.plan(rewarded, targets=["verl@0.8.0"]).plan["job.packages"]
    assert [each for each in listed if each.startswith("flash-attn")] == [listed[0]]


@pytest.mark.parametrize("release", ["0.9.4", "0.9.5"])
@pytest.mark.parametrize(
    ("pin", "software", "torch", "audio"),
    [
        ({"zero.stage": 1}, {}, "2.9.1", "2.9.1"),
        ({}, {"torch": "2.10.0"}, "2.10.0", "2.10.0"),
        ({}, {"torch": "2.11.0"}, "2.11.0", ""),
        ({"parallel.engine": "deepspeed"}, {}, "2.9.1", "2.9.1"),
    ],
)
def test_the_library_of_sounds_is_that_of_the_torch(release, pin, software, torch, audio):
    """pip took torchaudio 2.11 beside torch 2.9.1, and LLaMA-Factory's import of it failed."""
    spec = {**SPEC, "pin": pin, "software": software}
    found, taken = packages(spec, f"llamafactory@{release}")
    assert taken.partition("+")[0] == torch
    assert found["torchaudio"] == audio
    assert "torchaudio" not in packages(SPEC, "ms-swift")[0]


OF_OPTIMIZERS = {
    "lion": "bitsandbytes",
    "paged_lion_32bit": "bitsandbytes",
    "adalomo": "lomo-optim",
}
FULL = {**SPEC, "model": "qwen3-0.6b", "method": "full", "hardware": "a100-80g-x1"}


@pytest.mark.parametrize(
    ("trainer", "optimizer"),
    [("axolotl", "lion"), ("llamafactory", "paged_lion_32bit"), ("ms-swift", "lion")]
    + [("trl", each) for each in OF_OPTIMIZERS],
)
def test_the_trainers_optimizer_brings_its_package(trainer, optimizer):
    found, _ = packages(
        {**FULL, "batch": {"global": 1}, "train": {"optimizer": optimizer}}, trainer
    )
    assert {*OF_OPTIMIZERS.values()} & found.keys() == {OF_OPTIMIZERS[optimizer]}
