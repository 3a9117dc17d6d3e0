"""The simpletuner target: what it writes is what the real parser resolves, and it reads back."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import torch
from msgspec import structs
from packaging.version import Version
from tests.plans import plan_of
from transformers import get_scheduler

import tunec
from tunec.compiler.consumers.environments import Environment, prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose
from tunec.compiler.emit import emit
from tunec.compiler.ir.extra import SLOT as EXTRA
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.read import found_plain, read, recognise
from tunec.compiler.target import Artifact, File
from tunec.targets.simpletuner import schema
from tunec.targets.simpletuner.families import FAMILIES, flavour_of, of_model
from tunec.targets.simpletuner.optimizers import CHOICES
from tunec.targets.simpletuner.rows import environment as env
from tunec.targets.simpletuner.rows import forms
from tunec.targets.simpletuner.target import TARGET

VERSIONS = ("3.1.6", "4.10.1")
FLUX_TARGETS = (
    *("add_k_proj", "add_q_proj", "add_v_proj", "to_add_out"),
    *("to_k", "to_out.0", "to_q", "to_v"),
)

FLUX_LORA: Mapping[str, Any] = {
    **{path: plan_of()[path] for path in SLOTS},
    "model.path": "black-forest-labs/FLUX.1-dev",
    "model.family": "FluxTransformer2DModel",
    "model.kind": "diffusion",
    "model.parameters": 11_901_408_320,
    "devices.per_node": 1,
    "devices.budget": 72 * 2**30,
    "data.train": "photos",
    "data.samples": 400,
    "data.sequence": 0,
    "data.images": 1,
    "data.image_width": 768,
    "data.image_height": 768,
    "adapter.dropout": 0.0,
    "adapter.targets": FLUX_TARGETS,
    "adapter.trainable_parameters": 9_000_000,
    "optimizer.name": "adamw_bf16",
    "optimizer.kernel": "own",
    "optimizer.learning_rate": 1e-4,
    "optimizer.beta2": 0.999,
    "optimizer.weight_decay": 0.0,
    "optimizer.max_grad_norm": 1.0,
    "parallel.engine": "none",
    "parallel.world": 1,
    "parallel.data": 1,
    "states.master_weights": False,
    "states.optimizer": "bf16",
    "zero.stage": 0,
    "zero.pin_memory": True,
    "zero.reduce_bucket": 500_000_000,
    "zero.allgather_bucket": 500_000_000,
    "zero.prefetch_bucket": 50_000_000,
    "zero.persistence_threshold": 100_000,
    "zero.max_live_parameters": 1_000_000_000,
    "zero.max_reuse_distance": 1_000_000_000,
    "zero.sub_group_size": 1_000_000_000,
    "zero.gather_on_save": True,
    "batch.accumulation": 3,
    "batch.global": 6,
    "batch.evaluation": 1,
    "schedule.kind": "linear",
    "schedule.epochs": None,
    "schedule.steps": 200,
    "schedule.warmup_share": None,
    "schedule.warmup_steps": 6,
    "schedule.log_steps": 2,
    "schedule.save_steps": 67,
    "runtime.seed": 42,
    "runtime.report_to": ("wandb",),
    "launch.launcher": "accelerate",
}


def plan(**changes: Any) -> Plan:
    """The plan above with other values; `a__b` stands for slot `a.b`."""
    named = {name.replace("__", "."): value for name, value in changes.items()}
    assert named.keys() <= SLOTS.keys()
    return Plan.of({**FLUX_LORA, **named})


FOUR_RANKS = {
    "devices__per_node": 4,
    "parallel__engine": "ddp",
    "parallel__world": 4,
    "parallel__data": 4,
    "batch__global": 24,
    "devices__visible": ("0", "2", "3", "4"),
    "launch__environment": (
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ("CUDA_VISIBLE_DEVICES", "0,2,3,4"),
    ),
}
FULL = {"adapter__kind": "none", "adapter__rank": 0, "adapter__alpha": 0.0, "adapter__targets": ()}
IN_FP32 = {
    "precision__compute": "fp32",
    "quantization__compute": "fp32",
    "states__weights": "fp32",
    "states__trainable": "fp32",
    "states__gradients": "fp32",
    "states__optimizer": "fp32",
    "optimizer__name": "adamw",
    "optimizer__kernel": "fused",
}
DEEPSPEED = {
    **FULL,
    **FOUR_RANKS,
    "parallel__engine": "deepspeed",
    "zero__stage": 2,
    "optimizer__name": "adamw",
    "optimizer__kernel": "fused",
    "optimizer__weight_decay": 0.1,
    "states__master_weights": True,
    "states__optimizer": "fp32",
    "schedule__save_steps": 1_000_000,
}

FSDP = {
    **FOUR_RANKS,
    "parallel__engine": "fsdp",
    "fsdp__version": 2,
    "fsdp__sharding": "full",
    "fsdp__wrap": "transformer",
    "fsdp__backward_prefetch": "pre",
    "fsdp__use_orig_params": True,
    "fsdp__state_dict": "full",
    "optimizer__name": "adamw",
    "optimizer__kernel": "fused",
    "states__trainable": "fp32",
    "states__gradients": "fp32",
    "states__optimizer": "fp32",
}

PLANS: Mapping[str, Plan] = {
    "LoRA": plan(),
    "LoRA on four": plan(**FOUR_RANKS),
    "QLoRA": plan(quantization__format="nf4", quantization__double=True),
    "eight bits": plan(quantization__format="int8"),
    "full": plan(**FULL),
    "full in fp32": plan(**FULL, **IN_FP32),
    "AdamW in pieces": plan(**FULL, **{**IN_FP32, "optimizer__kernel": "foreach"}),
    "8-bit AdamW": plan(
        optimizer__name="adamw_8bit", optimizer__kernel="bitsandbytes", states__optimizer="int8"
    ),
    "paged AdamW": plan(
        optimizer__name="paged_adamw_32bit",
        optimizer__kernel="bitsandbytes",
        states__optimizer="fp32",
        optimizer__weight_decay=0.05,
    ),
    "lion": plan(optimizer__name="lion", optimizer__beta2=0.99),
    "cosine": plan(schedule__kind="cosine", schedule__warmup_steps=0),
    "cosine to a least rate": plan(
        schedule__kind="cosine_with_min_lr",
        schedule__warmup_steps=0,
        schedule__arguments=(("min_lr", 1e-5),),
    ),
    "polynomial": plan(schedule__kind="polynomial"),
    "polynomial with arguments": plan(
        schedule__kind="polynomial", schedule__arguments=(("lr_end", 2e-5), ("power", 2.0))
    ),
    "constant": plan(schedule__kind="constant", schedule__warmup_steps=0),
    "epochs alone": plan(
        data__samples=None,
        schedule__kind="constant",
        schedule__warmup_steps=0,
        schedule__epochs=3.0,
        schedule__steps=None,
        schedule__save_steps=None,
        schedule__keep_checkpoints=None,
    ),
    "evaluated": plan(data__evaluation="held-out", schedule__evaluation_steps=50),
    "several folders": plan(
        data__more=("pictures", "closeups", "wide", "wide"),
        data__train="pictures",
        data__evaluation="held-out",
    ),
    "given pictures": plan(
        data__references=("before", "poses"),
        data__images=3,
        data__image_tokens=4608,
        model__path="black-forest-labs/FLUX.1-Kontext-dev",
    ),
    "nothing recomputed": plan(activation_checkpointing__mode="none", precision__tf32=False),
    "flash": plan(attention__implementation="flash_attention_2", runtime__report_to=()),
    "eager": plan(attention__implementation="eager", adapter__dora=True),
    "SDXL": plan(
        **FULL,
        model__path="stabilityai/stable-diffusion-xl-base-1.0",
        model__family="UNet2DConditionModel",
    ),
    "SD3 of one's own": plan(
        model__path="./my-sd3",
        model__family="SD3Transformer2DModel",
        adapter__targets=("to_k", "to_out.0", "to_q", "to_v"),
    ),
    "DeepSpeed": plan(**DEEPSPEED),
    "DeepSpeed, cosine": plan(**DEEPSPEED, schedule__kind="cosine"),
}
"""Plans that both versions can say."""

ONLY_LATER: Mapping[str, Plan] = {
    "betas": plan(optimizer__beta1=0.8, optimizer__beta2=0.95, optimizer__weight_decay=0.1),
    "other modules": plan(adapter__targets=("proj_out", "to_q")),
    "two trackers": plan(runtime__report_to=("tensorboard", "wandb")),
    "FSDP": plan(**FSDP, **FULL),
    "FSDP of adapters": plan(
        **FSDP | {"fsdp__sharding": "grad_op", "fsdp__state_dict": "sharded"},
        fsdp__wrap_classes=("FluxTransformerBlock", "FluxSingleTransformerBlock"),
    ),
    "FSDP that recomputes": plan(**FSDP, **FULL, fsdp__checkpointing=True),
}
"""Plans that 3.1.6 has no words for, or does not run to a good end."""
LATER: Mapping[str, str] = dict.fromkeys(
    (name for name in ONLY_LATER if name.startswith("FSDP")), "as if they were the model"
)
"""Why it has none, where that is more than a key that is missing."""


@cache
def environment(version: str) -> Environment:
    return prepare(choose("simpletuner", version).requirements)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def consumer(version: str) -> str:
    return version


def sayable(version: str) -> Mapping[str, Plan]:
    return PLANS if version == "3.1.6" else {**PLANS, **ONLY_LATER}


def written(plan: Plan, version: str) -> Mapping[str, Artifact]:
    artifacts, faults = emit(TARGET, plan, Version(version))
    assert [fault.message for fault in faults if fault.severity == "error"] == []
    return {artifact.name: artifact for artifact in artifacts}


def errors(plan: Plan, version: str) -> list[str]:
    _, faults = emit(TARGET, plan, Version(version))
    return [fault.message for fault in faults if fault.severity == "error"]


# ── the table covers everything ──────────────────────────────────────────────────────────────────


def test_every_slot_is_said_or_cannot_be(version):
    said = TARGET.sayable(TARGET.dialect(Version(version)))
    assert said | TARGET.cannot.keys() | {EXTRA} == SLOTS.keys()


def test_every_row_names_slots_that_there_are():
    slots = {slot for file in TARGET.files for entry in file.entries for slot in entry.slots}
    assert slots <= SLOTS.keys()


# ── writing and reading ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", PLANS)
def test_plan_can_be_said(name, version):
    assert errors(PLANS[name], version) == []


@pytest.mark.parametrize("name", ONLY_LATER)
def test_plan_that_came_later(name):
    assert errors(ONLY_LATER[name], "4.10.1") == []
    why = LATER.get(name, "cannot express")
    assert any(why in message for message in errors(ONLY_LATER[name], "3.1.6"))


def parsed(file: File, text: str) -> Any:
    return file.parse(text) if file.parse else json.loads(text)


@pytest.mark.parametrize(
    ("name", "version"),
    [(name, version) for version in VERSIONS for name in sayable(version)],
)
def test_what_is_written_reads_back(name, version):
    plan = sayable(version)[name]
    dialect = TARGET.dialect(Version(version))
    files = {file.name: file for file in TARGET.files}
    documents = {
        name: found_plain(parsed(files[name], artifact.text))
        for name, artifact in written(plan, version).items()
    }
    definitions = read(TARGET, documents, Version(version))
    observed = {each.slot: each for each in definitions if each.rank is Rank.OBSERVED}
    for slot, definition in observed.items():
        assert definition.value == plan[slot], slot
    said = {
        slot
        for file in TARGET.files
        if file.when(plan)
        for entry in file.entries
        if entry.holds_in(dialect) and entry.when(plan)
        for slot in entry.slots
    }
    assumed = {each.slot: each.value for each in definitions if each.rank is Rank.CONSUMER}
    for slot in said - observed.keys():
        assert assumed[slot] == plan[slot], slot


@pytest.mark.parametrize("name", ["LoRA on four", "DeepSpeed"])
def test_each_file_is_recognised(name, version):
    files = {file.name: file for file in TARGET.files}
    for artifact in written(PLANS[name], version).values():
        document = parsed(files[artifact.name], artifact.text)
        found = recognise(TARGET, document)
        assert found is not None
        assert found.name == artifact.name


def test_same_bytes_every_time(version):
    first = {name: each.text for name, each in written(PLANS["LoRA on four"], version).items()}
    again = {name: each.text for name, each in written(PLANS["LoRA on four"], version).items()}
    assert first == again


def test_precision_and_processes_are_said_twice_and_agree(version):
    files = written(PLANS["LoRA on four"], version)
    config = files["config/config.json"].values
    variables = env.parse(files["config/config.env"].text)
    assert variables["MIXED_PRECISION"] == config["mixed_precision"]
    assert variables["TRAINING_NUM_PROCESSES"] == str(config["num_processes"]) == "4"
    assert variables["CUDA_VISIBLE_DEVICES"] == "0,2,3,4"


@pytest.mark.parametrize("schedule", ["constant_with_warmup", "cosine", "linear"])
def test_nothing_is_found_in_what_tunec_itself_writes(schedule):
    spec = (
        "tunec: 1\nmodel: sdxl\nmethod: lora\nhardware: a100-80g-x8\n"
        "data: {train: [pictures, {path: closeups, times: 3}], samples: 500}\n"
        f"train: {{steps: 60, warmup: {0 if schedule == 'cosine' else 6}, schedule: {schedule}}}\n"
    )
    result = tunec.compile(spec, targets=["simpletuner"])
    assert result.ok
    assert [each.code for each in result.diagnostics if each.severity != "note"] == []


# ── what cannot be said ──────────────────────────────────────────────────────────────────────────

REFUSED: Mapping[str, tuple[Plan, str]] = {
    "adamw_bf16 in fp32": (
        plan(**{**IN_FP32, "optimizer__name": "adamw_bf16", "optimizer__kernel": "own"}),
        "adamw_bf16 steps bf16 parameters only",
    ),
    "fp16": (
        plan(precision__compute="fp16", precision__loss_scaling="dynamic"),
        "GradScaler does not unscale",
    ),
    "LoRA with DeepSpeed": (
        plan(**FOUR_RANKS | {"parallel__engine": "deepspeed"}),
        "LoRA can not be trained with DeepSpeed",
    ),
    "quantised in full": (
        plan(**FULL, quantization__format="int8"),
        "full tuning is not compatible with quantisation",
    ),
    "checkpoints of several ranks in full": (
        plan(**DEEPSPEED | {"schedule__save_steps": 67}),
        "hangs once it has written a checkpoint",
    ),
    "an end under ZeRO 3": (plan(**DEEPSPEED | {"zero__stage": 3}), "empty tensors"),
    "adamw_bf16 under FSDP": (
        plan(**FSDP | {"optimizer__name": "adamw_bf16", "optimizer__kernel": "own"}),
        "steps fp32 shards",
    ),
    "FSDP 1": (plan(**FSDP | {"fsdp__version": 1}), "as if that were the model"),
    "shards on the host": (plan(**FSDP, fsdp__offload_params=True), "are not clipped"),
    "segments of FSDP's units": (
        plan(
            **FSDP,
            **FULL,
            fsdp__checkpointing=True,
            activation_checkpointing__mode="layer",
            activation_checkpointing__segment=2,
        ),
        "recomputes each of its units",
    ),
    "SGD with DeepSpeed": (
        plan(**DEEPSPEED | {"optimizer__name": "sgd", "optimizer__kernel": "foreach"}),
        "puts AdamW in the place",
    ),
    "fp32 parameters under bf16": (
        plan(optimizer__name="adamw", optimizer__kernel="fused", states__trainable="fp32"),
        "cannot express states.trainable",
    ),
    "a shape of its own": (
        plan(schedule__kind="inverse_sqrt"),
        "can say constant, constant_with_warmup, linear, cosine, cosine_with_min_lr or polynomial",
    ),
    "restarts": (plan(schedule__kind="cosine_with_restarts"), "--lr_scheduler can say"),
    "too few pictures": (plan(data__samples=5), "will produce zero usable batches"),
    "cosine with warm-up": (plan(schedule__kind="cosine"), "cannot express schedule.kind"),
    "half an epoch": (
        plan(data__samples=None, schedule__steps=None, schedule__epochs=1.5),
        "cannot express schedule.epochs",
    ),
    "fp4": (plan(quantization__format="fp4"), "cannot express quantization.format"),
    "one quantisation": (plan(quantization__format="nf4"), "cannot express quantization.double"),
    "adafactor": (plan(optimizer__name="adafactor"), "cannot express optimizer.name"),
    "mlflow": (plan(runtime__report_to=("mlflow",)), "cannot express runtime.report_to"),
    "clock for a seed": (plan(runtime__seed=0), "cannot express runtime.seed"),
    "a broad picture": (plan(data__image_height=512), "cannot express data.image_height"),
    "a language model": (
        plan(model__kind="causal-lm", model__path="meta-llama/Llama-3.1-8B", model__family="llama"),
        "cannot express model.kind",
    ),
    "a UNet of one's own": (
        plan(model__path="./unet", model__family="UNet2DConditionModel"),
        "cannot express model.family",
    ),
    "modules by a pattern": (
        plan(adapter__targets="blocks\\..*"),
        "cannot express adapter.targets",
    ),
    "rsLoRA": (plan(adapter__rslora=True), "cannot express adapter.rslora"),
    "a variable of one's own": (
        plan(launch__environment=(("NCCL_DEBUG", "INFO"),)),
        "cannot express launch.environment",
    ),
    "tensor parallel": (plan(parallel__tensor=2), "cannot express parallel.tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name, version):
    refused, words = REFUSED[name]
    messages = errors(refused, version)
    assert any(words in message for message in messages), messages


def test_numbers_of_a_refused_optimizer_are_told_with_it(version):
    """One choice is one error, and the numbers that go with it are named beside it."""
    told = errors(REFUSED["adafactor"][0], version)
    assert [each for each in told if "cannot express optimizer." in each] == [
        f"simpletuner (simpletuner {version}) cannot express optimizer.name adafactor"
    ]


def test_torchrun_does_not_start_it(version):
    assert any(
        "accelerate" in message for message in errors(plan(launch__launcher="torchrun"), version)
    )


# ── the real consumer ────────────────────────────────────────────────────────────────────────────


def asked(plan: Plan, version: str) -> dict[str, Any]:
    return {
        "verb": "resolve",
        "backend": "json",
        "capability": [9, 0],
        "processes": plan.parallel.world,
        "files": {name: artifact.text for name, artifact in written(plan, version).items()},
        "folders": [
            folder
            for folder in (*training_data(plan), *plan.data.references, plan.data.evaluation)
            if folder
        ],
    }


@cache
def answers(version: str) -> Mapping[str, Any]:
    """Every question in one process: importing SimpleTuner takes most of the time."""
    plans = sayable(version)
    questions = {name: asked(plan, version) for name, plan in plans.items()}
    questions |= {f"step {name}": stepped(name, version) for name in STEPPED if name in plans}
    questions |= {f"rates {kind}": scheduled(each, version) for kind, each in SHORT.items()}
    files = questions["LoRA on four"]["files"]
    questions["launch"] = {"verb": "launch", "files": files}
    files = {"config/config.env": VARIABLES}
    questions["variables"] = {"verb": "resolve", "backend": "env", "files": files}
    questions["families"] = {"verb": "families"}
    questions["schema"] = {"verb": "schema"}
    found = ask(environment(version), schema.CONSUMER, list(questions.values()), schema.SECONDS)
    return dict(zip(questions, found, strict=True))


STEPPED = ("LoRA", "full in fp32", "AdamW in pieces", "lion", "betas")
SHORT = {
    "linear": plan(schedule__steps=10, schedule__warmup_steps=2),
    "cosine": plan(schedule__kind="cosine", schedule__steps=10, schedule__warmup_steps=0),
    "cosine_with_min_lr": plan(
        schedule__kind="cosine_with_min_lr",
        schedule__arguments=(("min_lr", 2e-5),),
        schedule__steps=10,
        schedule__warmup_steps=0,
    ),
    "polynomial": plan(schedule__kind="polynomial", schedule__steps=10, schedule__warmup_steps=2),
    "polynomial with arguments": plan(
        schedule__kind="polynomial",
        schedule__arguments=(("lr_end", 1e-5), ("power", 2.0)),
        schedule__steps=10,
        schedule__warmup_steps=2,
    ),
}


def stepped(name: str, version: str) -> dict[str, Any]:
    states = sayable(version)[name].states
    dtypes = {"parameter": DTYPES[states.trainable], "gradient": DTYPES[states.gradients]}
    return {**asked(sayable(version)[name], version), "verb": "step", **dtypes}


def scheduled(plan: Plan, version: str) -> dict[str, Any]:
    return {**asked(plan, version), "verb": "schedule", "steps": 11}


def resolved(version: str) -> Mapping[str, Any]:
    return {name: answers(version)[name] for name in sayable(version)}


def test_real_parser_accepts_every_plan(consumer):
    faults = {name: each["error"] for name, each in resolved(consumer).items() if "error" in each}
    assert faults == {}


def test_real_parser_resolves_what_was_planned(consumer):
    for name, planned in sayable(consumer).items():
        answer = resolved(consumer)[name]
        arguments = answer["arguments"]
        assert arguments["weight_dtype"] == DTYPES[planned.states.weights], name
        assert arguments["is_quantized"] == (planned.quantization.format != "none"), name
        for flag, slot in SAME.items():
            assert arguments[flag] == planned[slot], (name, flag)
        assert arguments["grad_clip_method"] == "norm", name
        assert not (arguments["max_train_steps"] and arguments["num_train_epochs"]), name
        if planned.adapter.kind == "lora":
            for flag, slot in ADAPTER.items():
                assert arguments[flag] == planned[slot], (name, flag)


DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
SAME = {
    "learning_rate": "optimizer.learning_rate",
    "max_grad_norm": "optimizer.max_grad_norm",
    "train_batch_size": "batch.micro",
    "gradient_accumulation_steps": "batch.accumulation",
    "pretrained_model_name_or_path": "model.path",
    "resolution": "data.image_width",
    "seed": "runtime.seed",
    "output_dir": "runtime.output",
    "eval_steps_interval": "schedule.evaluation_steps",
    "num_processes": "parallel.world",
}
ADAPTER = {"lora_rank": "adapter.rank", "lora_alpha": "adapter.alpha", "use_dora": "adapter.dora"}


def test_real_data_loader_takes_the_data(consumer):
    for name, planned in sayable(consumer).items():
        data = resolved(consumer)[name]["data"]
        assert data["rules"] == [], name
        train = data["backends"][0]["config"]
        assert train["instance_data_dir"] == planned.data.train
        trained = [each["config"] for each in data["backends"] if each["dataset_type"] == "image"]
        seen = [
            each["instance_data_dir"] for each in trained for _ in range(each.get("repeats", 0) + 1)
        ]
        assert tuple(seen) == training_data(planned)
        assert train["resolution"] == pytest.approx(planned.data.image_width**2 / 1e6)
        kinds = [each["dataset_type"] for each in data["backends"]]
        assert ("eval" in kinds) == (planned.data.evaluation is not None)
        given = [e["config"] for e in data["backends"] if e["dataset_type"] == "conditioning"]
        assert [each["instance_data_dir"] for each in given] == [*planned.data.references]


def test_real_deepspeed_file_is_left_as_it_is(consumer):
    for name in ("DeepSpeed", "DeepSpeed, cosine"):
        file = written(PLANS[name], consumer)["ds_config.json"].values
        kept = resolved(consumer)[name]["deepspeed"]
        assert kept["optimizer"] == file["optimizer"]
        assert kept["scheduler"] == file["scheduler"]
        assert kept["train_micro_batch_size_per_gpu"] == PLANS[name].batch.micro


def test_real_launcher_starts_as_planned(consumer):
    answer = answers(consumer)["launch"]
    assert answer["command"][2:5] == [
        "--mixed_precision=bf16",
        "--num_processes=4",
        "--num_machines=1",
    ]
    assert answer["environment"]["CUDA_VISIBLE_DEVICES"] == "0,2,3,4"
    assert answer["environment"]["CONFIG_BACKEND"] == "json"


@pytest.mark.parametrize("name", STEPPED)
def test_real_optimizer_has_the_planned_settings(consumer, name):
    if name not in sayable(consumer):
        assert name in ONLY_LATER
        return
    planned, answer = sayable(consumer)[name].optimizer, answers(consumer)[f"step {name}"]
    assert "error" not in answer
    settings = answer["settings"]
    assert settings["betas"] == [planned.beta1, planned.beta2]
    assert settings["weight_decay"] == planned.weight_decay
    assert settings.get("eps", planned.epsilon) == planned.epsilon
    switches = {"fused": planned.kernel == "fused", "foreach": planned.kernel == "foreach"}
    if planned.name == "adamw":
        assert {each: settings.get(each, False) for each in switches} == switches


def test_real_learning_rates_are_the_planned_ones(consumer):
    """transformers' own schedule of the plan is what SimpleTuner's comes to; it drops digits."""
    for name, planned in SHORT.items():
        rates = answers(consumer)[f"rates {name}"]["rates"]
        assert rates == pytest.approx(rates_of(planned, len(rates)), abs=2e-9), name
        assert len(set(rates)) > len(rates) / 2


def rates_of(planned: Plan, steps: int) -> list[float]:
    """The rate of each step by transformers, made of the plan's numbers."""
    schedule = planned.schedule
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=planned.optimizer.learning_rate)
    made = get_scheduler(
        schedule.kind, optimizer, schedule.warmup_steps, schedule.steps, dict(schedule.arguments)
    )
    rates = []
    for _ in range(steps):
        rates += made.get_last_lr()
        optimizer.step()
        made.step()
    return rates


def test_families_are_the_release_s_own(consumer):
    found = answers(consumer)["families"]
    for family in FAMILIES:
        if not family.holds_at(Version(consumer)):
            assert family.name not in found
            continue
        real = found[family.name]
        assert real["class"].removeprefix("FlowMap") == family.denoiser
        assert real["default"] == family.default or not family.default
        known = {each for each in family.flavours if family.knows(each, Version(consumer))}
        assert known == family.flavours.keys() & real["flavours"].keys()
        assert all(real["flavours"][each] == family.flavours[each] for each in known)


def test_optimizers_are_the_release_s_own(consumer):
    real = answers(consumer)["schema"]["optimizers"]
    for choice in CHOICES:
        settings = real[choice.word]["default_settings"]
        assert settings.get("betas") == (list(choice.betas) if choice.betas else None)
        assert settings.get("eps") == choice.epsilon
        assert settings["weight_decay"] == choice.weight_decay


# ── foreign files ────────────────────────────────────────────────────────────────────────────────


def settled(version: str, **config: Any) -> Mapping[str, Any]:
    base = {"model_family": "flux", "model_type": "lora", "optimizer": "adamw_bf16"}
    documents = {"config/config.json": found_plain({**base, **config})}
    definitions = read(TARGET, documents, Version(version))
    return {each.slot: each.value for each in sorted(definitions, key=lambda each: each.rank)}


def test_defaults_that_surprise(version):
    slots = settled(version)
    assert slots["model.path"] == "black-forest-labs/flux.1-krea-dev"
    assert slots["adapter.dropout"] == 0.1
    assert slots["adapter.alpha"] == 16.0
    assert slots["optimizer.learning_rate"] == 4e-7
    assert slots["optimizer.weight_decay"] == 0.01
    assert "optimizer.max_grad_norm" not in slots


def test_cosine_that_rises_again_is_not_ours(version):
    assert "schedule.kind" not in settled(
        version, lr_scheduler="cosine", lr_warmup_steps=100, max_train_steps=1000
    )


def test_warmup_of_a_constant_rate(version):
    slots = settled(version, lr_scheduler="constant", lr_warmup_steps=10)
    kind = "constant" if version == "3.1.6" else "constant_with_warmup"
    assert slots["schedule.kind"] == kind
    assert slots["schedule.warmup_steps"] == (0 if version == "3.1.6" else 10)


def test_adam_flags_say_nothing(version):
    slots = settled(version, adam_weight_decay=0.3, adam_beta1=0.5)
    assert (slots["optimizer.weight_decay"], slots["optimizer.beta1"]) == (0.01, 0.9)


COMMAND = """
simpletuner train --model_family=flux --model_type lora \\
  --lora_rank=8 --use_dora --output_dir 'my out'  # a comment
"""


def test_command_line_comes_to_the_same_keys():
    assert forms.parse_flags(COMMAND) == {
        "model_family": "flux",
        "model_type": "lora",
        "lora_rank": 8,
        "use_dora": True,
        "output_dir": "my out",
    }


def test_variables_come_to_what_the_real_loader_makes_of_them(consumer):
    arguments = answers(consumer)["variables"]["arguments"]
    found = forms.parse_variables(VARIABLES)
    assert not found.keys() & {"use_dora", "gradient_checkpointing"}
    assert found["lora_rank"] == 8
    for flag, value in found.items():
        assert arguments[flag] in (value, str(value)), flag
    assert arguments["gradient_checkpointing"] is True


VARIABLES = """
MODEL_FAMILY=flux
export MODEL_TYPE="lora"
MODEL_NAME='./my-flux'
OPTIMIZER=optimi-lion
OUTPUT_DIR=out
DATALOADER_CONFIG=config/multidatabackend.json
MIXED_PRECISION=bf16
BASE_MODEL_PRECISION=int8-quanto
LORA_TYPE=standard
USE_DORA=false
USE_GRADIENT_CHECKPOINTING=false
TRAIN_BATCH_SIZE=3
GRADIENT_ACCUMULATION_STEPS=2
LEARNING_RATE=2e-5
LR_SCHEDULE=linear
LR_WARMUP_STEPS=7
LR_END=0.5
MAX_NUM_STEPS=70
NUM_EPOCHS=0
CHECKPOINTING_STEPS=35
CHECKPOINT_EPOCH_INTERVAL=2
CHECKPOINTING_LIMIT=3
RESOLUTION=768
RESOLUTION_TYPE=pixel_area
TRAINING_SEED=9
TRAINING_NUM_PROCESSES=2
TRAINING_NUM_MACHINES=1
TRAINER_EXTRA_ARGS="--lora_rank=8 --max_grad_norm 0.5"
"""


def test_keys_with_dashes_and_numbers_as_words(version):
    config = {"--learning_rate": "2e-5", "--use_dora": "true", "--gradient_checkpointing": "false"}
    slots = settled(version, **config)
    assert slots["optimizer.learning_rate"] == 2e-5
    assert slots["adapter.dora"] is True
    assert "activation_checkpointing.mode" not in slots


@pytest.mark.parametrize(
    ("path", "denoiser", "parameters", "family", "flavour"),
    [
        (
            "stabilityai/stable-diffusion-xl-base-1.0",
            "UNet2DConditionModel",
            2567463684,
            "sdxl",
            "base-1.0",
        ),
        ("./flux", "FluxTransformer2DModel", 1, "flux", None),
        ("./flux", "FluxTransformer2DModel", 11891178560, "flux", "schnell"),
        ("./unet", "UNet2DConditionModel", 1, None, None),
        ("./unet", "UNet2DConditionModel", 859520964, "sd1x", "1.5"),
        ("./klein", "Flux2Transformer2DModel", 3875544576, "flux2", "klein-4b"),
    ],
)
def test_model_by_repository_class_or_size(path, denoiser, parameters, family, flavour):
    model = structs.replace(plan_of().model, path=path, family=denoiser, parameters=parameters)
    found, known = of_model(model), flavour_of(model)
    assert (found and found.name) == family
    assert (known and known[1]) == flavour


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1\n# B=2\nexport C='x  y'\n", {"A": "1", "C": "x y"}),
        ('X="a"\nX+=" b"\n', {"X": "a b"}),
        ("no line\n", {}),
    ],
)
def test_variables_are_parsed_as_simpletuner_does(text, found):
    assert env.parse(text) == found
