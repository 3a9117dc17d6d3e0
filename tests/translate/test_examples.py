"""Commands of diffusers' example scripts become specs that start these scripts as they were."""

import json
import shlex
from pathlib import Path

import pytest
from packaging.version import Version

from tunec.compiler.cli.main import run
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_spec
from tunec.schemas.models.catalogue import card
from tunec.targets.registry import REGISTRY, TARGETS

LOOP = """\
import argparse
from peft import LoraConfig
args = argparse.ArgumentParser().parse_args()
unet = LoraConfig(r=args.rank, lora_alpha=args.rank, target_modules=["to_k", "to_q"])
text = LoraConfig(r=args.rank, target_modules=["q_proj"], init_lora_weights="gaussian")
"""
"""What an example sets of PEFT, beside a loop of its own."""
FLAGS = (
    "--resolution 512 --train_batch_size 2 --gradient_accumulation_steps 2 --max_train_steps 100 "
    "--learning_rate 1e-4 --seed 42"
)
MODELS = {
    "train_text_to_image_lora": ("stable-diffusion-v1-5/stable-diffusion-v1-5", "lora"),
    "train_text_to_image_lora_sdxl": ("stabilityai/stable-diffusion-xl-base-1.0", "lora"),
    "train_text_to_image": ("stable-diffusion-v1-5/stable-diffusion-v1-5", "none"),
    "train_dreambooth_lora_sd3": ("stabilityai/stable-diffusion-3-medium-diffusers", "lora"),
    "train_dreambooth_lora_flux": ("black-forest-labs/FLUX.1-dev", "lora"),
}


def spec_of(folder, script, *words):
    """The spec that `tunec init` makes of a command, read and compiled."""
    Path(f"{script}.py").write_text(LOOP if "lora" in script else "import torch\n", "utf-8")
    Path("train.sh").write_text(shlex.join(["accelerate", "launch", f"{script}.py", *words]))
    made = ["init", "--from", "train.sh", "--hardware", "a100-80g-x1", "-o", "spec.yaml"]
    assert run(made, REGISTRY, "0") == 0
    launch = TARGETS["launch"]
    return compile_spec(load_spec(folder / "spec.yaml"), [(launch, Version(launch.latest))])


@pytest.mark.parametrize("script", MODELS)
def test_an_example_is_started_with_the_flags_that_it_had(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, kind = MODELS[script]
    where = "--instance_data_dir" if "dreambooth" in script else "--train_data_dir"
    flags = ["--pretrained_model_name_or_path", model, "--mixed_precision", "bf16"]
    words = [*flags, *shlex.split(FLAGS), where, "./pictures"]
    found = spec_of(tmp_path, script, *words)
    assert found.ok, [each.message for each in found.diagnostics]
    plan = found.planned.plan
    assert (plan.model.path, plan.adapter.kind, plan.model.kind) == (model, kind, "diffusion")
    assert plan.adapter.rank == (4 if kind == "lora" else 0)
    assert (plan.data.train, plan.data.image_width) == ("./pictures", 512)
    assert (plan.batch.micro, plan.batch.accumulation, plan.schedule.steps) == (2, 2, 100)
    assert (plan.precision.compute, plan.states.autocast) == ("bf16", True)
    assert (plan.optimizer.learning_rate, plan.runtime.seed) == (1e-4, 42)
    assert shlex.split(plan.launch.script) == [f"{script}.py", *words]
    assert not [each for each in found.diagnostics if each.severity != "note"]


def test_a_pipeline_on_disk_is_described_by_the_model_that_is_named(tmp_path, monkeypatch):
    """`--model` says what is trained of a folder without a config of its own."""
    monkeypatch.chdir(tmp_path)
    config = dict(card("sd-1.5").config)
    Path("weights/unet").mkdir(parents=True)
    Path("weights/unet/config.json").write_text(json.dumps(config), "utf-8")
    Path("t.sh").write_text(
        "accelerate launch train_text_to_image_lora.py --train_batch_size 1 "
        "--pretrained_model_name_or_path ./weights --train_data_dir ./pictures\n"
    )
    made = ["init", "--from", "t.sh", "--hardware", "a100-80g-x1", "-o", "spec.yaml"]
    run([*made, "--model", "./weights/unet"], REGISTRY, "0")
    text = Path("spec.yaml").read_text("utf-8")
    assert "model: ./weights" in text
