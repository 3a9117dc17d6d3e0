"""Schedules with their arguments, and NEFTune: as transformers has them, or refused."""

import math
from typing import get_args

import pytest
import yaml

import tunec
from tunec.compiler.read import found_plain, read
from tunec.schemas.terms import ScheduleKind
from tunec.targets.registry import TARGETS

SPEC = """\
tunec: 1
model: {model}
method: lora
data: {{train: {train}, samples: 40000}}
hardware: a100-80g-x1
train:
  {{steps: 100, warmup: 10, learning_rate: 1.0e-3, schedule: {kind}, schedule_arguments: {told}}}
"""
ENDS = {
    "constant": ("{}", 1.0),
    "constant_with_warmup": ("{}", 1.0),
    "linear": ("{}", 0.0),
    "cosine": ("{num_cycles: 1}", 1.0),
    "cosine_with_restarts": ("{num_cycles: 3}", 0.0),
    "cosine_with_min_lr": ("{min_lr_rate: 0.1}", 0.1),
    "cosine_warmup_with_min_lr": ("{min_lr_rate: 0.2, warmup_lr_rate: 0.05}", 0.2),
    "polynomial": ("{lr_end: 5.0e-4, power: 2.0}", 0.5),
    "inverse_sqrt": ("{timescale: 30}", (30 / 120) ** 0.5),
    "warmup_stable_decay": ("{num_decay_steps: 20, min_lr_ratio: 0.25}", 0.25),
}
"""Each shape with arguments, and the share of the highest rate that is left after the last step;
cosine_warmup_with_min_lr runs one step ahead."""


def compiled(kind, told, target, model="Qwen2.5-0.5B", train="train.jsonl"):
    text = SPEC.format(kind=kind, told=told, model=model, train=train)
    return tunec.compile(text, targets=[target])


def document(kind, told, target, name):
    result = compiled(kind, told, target)
    assert result.ok, [each.message for each in result.diagnostics]
    found = {each.name: each.text for each in result.artifacts[target.partition("@")[0]]}
    return yaml.safe_load(found[name])


def test_every_shape_is_here():
    assert set(ENDS) == set(get_args(ScheduleKind))


@pytest.mark.parametrize("kind", ENDS)
def test_the_rate_ends_where_the_arguments_say(kind):
    """transformers' own schedule is built of the file's keys, as the Trainer builds it."""
    import torch
    from transformers import TrainingArguments, get_scheduler

    told, end = ENDS[kind]
    said = document(kind, told, "huggingface", "training_args.yaml")
    given = {key: each for key, each in said.items() if key.startswith(("lr_", "warmup", "max_st"))}
    arguments = TrainingArguments(output_dir="unused", **given)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=said["learning_rate"])
    schedule = get_scheduler(
        arguments.lr_scheduler_type,
        optimizer,
        num_warmup_steps=arguments.get_warmup_steps(arguments.max_steps),
        num_training_steps=arguments.max_steps,
        scheduler_specific_kwargs=arguments.lr_scheduler_kwargs or {},
    )
    for _ in range(arguments.max_steps):
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] / 1e-3 == pytest.approx(end, abs=1e-3)


@pytest.mark.parametrize("kind", ENDS)
def test_it_is_read_back(kind):
    said = document(kind, ENDS[kind][0], "trl", "sft.yaml")
    target, version = TARGETS.resolve("trl")
    values = {
        each.slot: each.value
        for each in read(target, {"sft.yaml": found_plain(said)}, version)
        if each.slot.startswith("schedule.")
    }
    assert values["schedule.kind"] == kind
    assert dict(values["schedule.arguments"]) == yaml.safe_load(ENDS[kind][0])


@pytest.mark.parametrize(
    ("kind", "target", "code"),
    [
        ("cosine_warmup_with_min_lr", "huggingface@4.40", "E0904"),
        ("warmup_stable_decay", "huggingface@4.40", "E0904"),
    ],
)
def test_a_release_without_the_shape_refuses_it(kind, target, code):
    result = compiled(kind, ENDS[kind][0], target)
    assert code in {each.id for each in result.diagnostics if each.severity == "error"}


def test_an_argument_of_another_shape_is_refused():
    result = compiled("cosine", "{min_lr_rate: 0.1}", "huggingface")
    (fault,) = [each for each in result.diagnostics if each.severity == "error"]
    assert "the schedule cosine has no argument `min_lr_rate`" in fault.message


@pytest.mark.parametrize(
    ("told", "faults"),
    [("{num_decay_steps: 20}", ["E0905"]), ("{num_decay_steps: 20, num_stable_steps: 70}", [])],
)
def test_llamafactory_is_told_how_long_the_rate_is_held(told, faults):
    """llamafactory 0.9.5 `create_custom_scheduler`: otherwise for a third of the steps."""
    result = compiled("warmup_stable_decay", told, "llamafactory")
    assert [each.id for each in result.diagnostics if each.severity == "error"] == faults


def test_simpletuner_refuses_what_it_is_not_told():
    result = compiled(
        "cosine_with_min_lr", "{min_lr_rate: 0.1}", "simpletuner", "sdxl-base-1.0", "p/"
    )
    lost = {each.message for each in result.diagnostics if each.id == "E0901"}
    assert any("schedule.kind cosine_with_min_lr" in each for each in lost)
    assert any("schedule.arguments min_lr_rate=0.1" in each for each in lost)


NOISY = """\
tunec: 1
model: {model}
method: lora
data: {{train: {train}, samples: 40000}}
hardware: a100-80g-x1
train: {{neftune_alpha: 5, steps: 100}}
"""


def noisy_files(target, model="Qwen2.5-0.5B", train="train.jsonl"):
    text = NOISY.format(model=model, train=train)
    return tunec.compile(text, targets=[target])


def noisy_document(target, name):
    result = noisy_files(target)
    assert result.ok, [each.message for each in result.diagnostics]
    found = {each.name: each.text for each in result.artifacts[target.partition("@")[0]]}
    return yaml.safe_load(found[name])


def test_the_trainer_adds_that_much_noise():
    """The hook that the Trainer registers shifts embeddings by alpha / sqrt(tokens x width)."""
    import torch
    from accelerate import Accelerator
    from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments
    from transformers.integrations.neftune import activate_neftune

    said = noisy_document("huggingface", "training_args.yaml")
    arguments = TrainingArguments(
        output_dir="unused", neftune_noise_alpha=said["neftune_noise_alpha"]
    )
    shape = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, intermediate_size=16, **shape)).train()
    words = torch.arange(8)[None]
    plain = model.get_input_embeddings()(words).detach()
    activate_neftune(model, arguments.neftune_noise_alpha, Accelerator(cpu=True))
    shift = (model.get_input_embeddings()(words) - plain).abs().max().item()
    most = 5 / math.sqrt(8 * 16)
    assert 0.8 * most < shift <= most * 1.001


@pytest.mark.parametrize("target", ["trl@0.8", "trl@0.17", "trl@1.16"])
def test_the_script_is_told(target):
    assert noisy_document(target, "sft.yaml")["neftune_noise_alpha"] == 5.0


def test_nothing_is_written_unasked():
    text = NOISY.format(model="Qwen2.5-0.5B", train="train.jsonl").replace("neftune_alpha: 5, ", "")
    result = tunec.compile(text, targets=["trl"])
    (sft,) = [each for each in result.artifacts["trl"] if each.name == "sft.yaml"]
    assert "neftune" not in sft.text


def test_noise_is_read_back():
    target, version = TARGETS.resolve("huggingface")
    documents = {"training_args.yaml": found_plain({"neftune_noise_alpha": 10})}
    values = {each.slot: each.value for each in read(target, documents, version)}
    assert values["runtime.neftune_alpha"] == 10.0


def test_a_trainer_without_noise_refuses():
    result = noisy_files("simpletuner", model="sdxl-base-1.0", train="photos/")
    (fault,) = [each for each in result.diagnostics if each.id == "E0901"]
    assert "runtime.neftune_alpha 5" in fault.message
    assert "SimpleTuner adds no noise to embeddings" in fault.notes


SHARES = [
    ("axolotl", {}, {"steps": 100}, 3, {"warmup_steps": 3}),
    ("axolotl", {}, {"steps": 90}, 2, {"warmup_steps": 2}),
    ("axolotl", {}, {"steps": 50}, 2, {"warmup_steps": 2}),
    ("axolotl", {}, {"steps": 20}, 0, {"warmup_steps": 0}),
    ("axolotl", {"samples": 640}, {"epochs": 1}, 0, {"warmup_ratio": 0.03}),
    ("axolotl", {"samples": 3200}, {"epochs": 1}, 3, {"warmup_ratio": 0.03}),
    ("axolotl", {}, {"epochs": 1}, None, {"warmup_ratio": 0.03}),
    ("huggingface", {}, {"steps": 20}, 1, {"warmup_steps": 0.03}),
]


@pytest.mark.parametrize(("target", "data", "length", "rise", "said"), SHARES)
def test_a_share_of_the_steps_is_the_warm_up_that_the_trainer_makes(
    target, data, length, rise, said
):
    loaded = {
        "tunec": 1,
        "model": "Qwen2.5-0.5B",
        "method": "lora",
        "data": {"train": "train.jsonl", **data},
        "hardware": "a100-80g-x1",
        "batch": {"global": 32},
        "train": {**length, "warmup": {"share": 0.03}},
    }
    result = tunec.compile(yaml.safe_dump(loaded), targets=[target])
    assert result.planned.plan is not None
    assert result.planned.plan.schedule.warmup_steps == rise
    found = yaml.safe_load(result.artifacts[target][0].text)
    assert {key: each for key, each in found.items() if key.startswith("warmup")} == said


@pytest.mark.parametrize("target", ["nemo-automodel", "verl"])
@pytest.mark.parametrize("warmup", ["0", "2", "{share: 0.01}"])
def test_a_constant_rate_of_no_warmup_is_the_constant_one(target, warmup):
    """A share of few steps may come to none, as verl rounds it down."""
    train = "train.parquet" if target == "verl" else "train.jsonl"
    text = SPEC.format(
        kind="constant_with_warmup", told="{}", model="Qwen2.5-0.5B", train=train
    ).replace("steps: 100, warmup: 10", f"steps: 20, warmup: {warmup}")
    result = tunec.compile(text, targets=[target])
    assert result.ok, [each.message for each in result.diagnostics]
    assert result.planned.plan.schedule.kind == "constant_with_warmup"
    (file,) = (each for each in result.artifacts[target] if each.format == "yaml")
    written = {**file.values, **file.values.get("optim", {}), **file.values.get("lr_scheduler", {})}
    assert "constant" in (written.get("lr_scheduler_type"), written.get("lr_decay_style"))
    assert written["lr_warmup_steps"] == result.planned.plan.schedule.warmup_steps
