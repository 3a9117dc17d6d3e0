"""The Trainer's files against nine real releases of transformers, with peft, trl and deepspeed."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from packaging.version import Version
from tests.plans import DDP, FP16, FP32, NVME, OFFLOAD, ONE, ZERO_0, ZERO_3, plan_of

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.schemas import automatic_keys, class_defaults
from tunec.compiler.consumers.sets import SETS, choose, releases
from tunec.compiler.emit import emit
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_plain, read, recognise, settle
from tunec.compiler.target import Artifact
from tunec.compiler.verify.check import Check, check
from tunec.compiler.verify.contract import Case, Delivered, Program
from tunec.compiler.verify.queries import verify
from tunec.schemas.frozen import replace
from tunec.targets.deepspeed.config import FILLED
from tunec.targets.huggingface.packages import PEFT_RELEASES, TRL_RELEASES, companions
from tunec.targets.huggingface.target import TARGET, TRAINING_ARGS
from tunec.targets.huggingface.verify import PROGRAMS, SCRIPT
from tunec.targets.launch.target import TARGET as LAUNCH

VERSIONS = tuple(known.version for known in releases("transformers"))
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


def method(**values: Any) -> Mapping[str, Any]:
    return {f"adapter.{name}": value for name, value in values.items()}


FULL = method(kind="none", rank=0, alpha=0.0, dropout=0.0, targets=())
QLORA = {"quantization.format": "nf4", "quantization.double": True}


def run(*changes: Mapping[str, Any]) -> Plan:
    """A plan that every release of TRL can say: its data has a name."""
    return plan_of({"data.train": "org/set"}, *changes)


CASES: Mapping[str, Plan] = {
    "zero 2": run(),
    "zero 0": run(ZERO_0, FP16),
    "zero 3": run(ZERO_3),
    "offload": run(OFFLOAD),
    "nvme": run(NVME),
    "fp16 on zero 2": run(FP16),
    "fp32 on zero 2": run(FP32),
    "ddp": run(DDP),
    "ddp in fp16": run(FP16, DDP, {"precision.loss_scale_window": 1000}),
    "ddp in fp32": run(FP32, DDP, {"states.autocast": False, "precision.tf32": False}),
    "one device": run(ONE),
    "pure bf16": run(
        ONE,
        FULL,
        {"states.autocast": False, "states.trainable": "bf16", "states.optimizer": "bf16"},
    ),
    "full": run(ZERO_3, FULL),
    "qlora": run(ONE, QLORA),
    "int8": run(ONE, {"quantization.format": "int8"}),
    "regular expression": run(method(targets=r"model\.layers\.\d+\.self_attn\.(q|v)_proj")),
    "one target": run(method(targets=("q_proj",))),
    "also trained": run(method(also_train=("embed_tokens", "lm_head"))),
    "rslora": run(method(rslora=True)),
    "dora": run(method(dora=True)),
    "reentrant": run({"activation_checkpointing.reentrant": True}),
    "no checkpointing": run({"activation_checkpointing.mode": "none"}),
    "by epochs": run({"schedule.steps": None, "schedule.warmup_steps": None}),
    "by steps": run({"schedule.epochs": None}),
    "warmed up in steps": run({"schedule.warmup_share": None, "schedule.warmup_steps": 90}),
    "saved by epoch": run({"schedule.save_steps": None, "schedule.keep_checkpoints": None}),
    "evaluated": run({"schedule.evaluation_steps": 500, "data.evaluation": "eval.jsonl"}),
    "tracked": run({"runtime.report_to": ("tensorboard",)}),
    "not clipped": run({"optimizer.max_grad_norm": 0.0}),
    "with images": run(
        {"model.kind": "vision-language", "data.images": 1, "data.image_tokens": 1600}
    ),
    "from a file": run({"data.train": "train.jsonl"}),
    "packed": run({"data.packing": True}),
    **{
        f"optimizer {name}": run({"optimizer.name": name, "optimizer.kernel": kernel})
        for name, kernel in (
            *(("adamw", "foreach"), ("adamw_8bit", "bitsandbytes"), ("adafactor", "own")),
            *(("paged_adamw_8bit", "bitsandbytes"), ("paged_adamw_32bit", "bitsandbytes")),
            *(("lion", "own"), ("sgd", "foreach")),
        )
    },
    **{
        f"schedule {kind}": run(
            {"schedule.kind": kind, "schedule.warmup_share": None, "schedule.warmup_steps": warmup}
        )
        for kind, warmup in (
            *(("constant", 0), ("constant_with_warmup", 10), ("linear", 10), ("cosine", 0)),
        )
    },
}


@cache
def emitted(name: str, version: str) -> dict[str, Artifact]:
    artifacts, diagnostics = emit(TARGET, CASES[name], Version(version))
    assert {each.severity for each in diagnostics} <= {"note"}, diagnostics
    return {each.name: each for each in artifacts}


@cache
def case(name: str, version: str) -> Case:
    """The emitted files as verify hands them on; the model is small enough to be built often."""
    files = emitted(name, version)
    return Case(
        spec=name,
        target=TARGET,
        version=Version(version),
        software={},
        plan=CASES[name],
        architecture=derive(LLAMA),
        config=LLAMA,
        delivered={key: Delivered(key, key, each.text) for key, each in files.items()},
        expected=files,
    )


ASKED = tuple(program for program in PROGRAMS if program.script == SCRIPT)
"""The programs of transformers, peft and trl; DeepSpeed has tests of its own."""


def questions(version: str) -> dict[tuple[str, str], tuple[Program, dict[str, Any]]]:
    found = {}
    for name in CASES:
        for program in ASKED:
            if program.file in emitted(name, version):
                found[program.name, name] = program, program.question(case(name, version), {})
    return found


def rate(name: str) -> dict[str, Any]:
    plan = CASES[name]
    return {
        "verb": "rates",
        "schedule": plan.schedule.kind,
        "learning_rate": plan.optimizer.learning_rate,
        "warmup_steps": plan.schedule.warmup_steps,
        "steps": 40,
    }


ADAPTED = tuple(name for name, plan in CASES.items() if plan.adapter.kind == "lora")
SCHEDULED = tuple(name for name in CASES if name.startswith("schedule"))


def told(version: str) -> dict[tuple[str, str], Any]:
    """Every program's raw answer and the check that comes of it, asked in one process."""
    programs = questions(version)
    distinct = {json.dumps(asked, sort_keys=True): asked for _, asked in programs.values()}
    rates = [rate(name) for name in SCHEDULED]
    environment = prepare(choose("transformers", version).requirements)
    replies = ask(environment, SCRIPT, [*distinct.values(), *rates], 400)
    by_question = dict(zip(distinct, replies, strict=False))
    found = {("rates", n): r for n, r in zip(SCHEDULED, replies[len(distinct) :], strict=True)}
    for (program, name), (reader, asked) in programs.items():
        reply = by_question[json.dumps(asked, sort_keys=True)]
        found[program, name] = reply
        found[program, name, "check"] = judged(case(name, version), reader, reply)
    return found


def judged(asked: Case, program: Program, reply: Any) -> Check:
    return check(asked, program, program.where(asked), program.heard(asked, reply))


def of_each(tell) -> dict[str, Any]:
    return {version: tell(version) for version in VERSIONS}


@pytest.fixture(scope="module")
def answers():
    """Each release's answers to all cases, asked once."""
    return of_each(told)


every_case = pytest.mark.parametrize("name", CASES)
every_version = pytest.mark.parametrize("version", VERSIONS)


TRAINER, FILLED_IN, LORA = (
    "TrainingArguments",
    "HfTrainerDeepSpeedConfig",
    "LoraConfig on the module tree",
)


@every_version
@every_case
def test_the_trainer_takes_the_arguments_without_a_warning(answers, name, version):
    answer = answers[version][TRAINER, name]
    assert answer["refused"] is None
    assert answer["warnings"] == []


@every_version
@every_case
def test_every_program_resolves_the_plan(answers, name, version):
    """Every key, unset ones too, as the class, the engine's file and trl's parser settle on it."""
    found = [answers[version].get((program.name, name, "check")) for program in ASKED]
    checks = [each for each in found if each is not None]
    assert len(checks) >= 2
    for each in checks:
        beside = [d for d in each.differences if d.slot != "adapter.trainable_parameters"]
        assert (each.status == "refused", beside) == (False, []), each


@every_version
@every_case
def test_the_trainer_finds_nothing_to_fill_in(answers, name, version):
    """MC010, MC011: nothing of ds_config.json is left to fill in."""
    if CASES[name].parallel.engine != "deepspeed":
        assert "ds_config.json" not in emitted(name, version)
        return
    engine = answers[version][FILLED_IN, name]["deepspeed"]
    values = emitted(name, version)["ds_config.json"].values
    assert engine == {**values, "steps_per_print": engine["steps_per_print"]}
    assert '"auto"' not in json.dumps(engine)


@every_version
@pytest.mark.parametrize("name", ADAPTED)
def test_peft_adapts_what_the_plan_names(answers, name, version):
    answer = answers[version][LORA, name]
    adapted = {module.rpartition(".")[2] for module in answer["modules"]}
    targets = CASES[name].adapter.targets
    assert adapted == ({"q_proj", "v_proj"} if isinstance(targets, str) else set(targets))


@every_version
@pytest.mark.parametrize("name", SCHEDULED)
def test_rates_are_what_the_other_table_s_test_takes_for_planned(answers, name, version):
    """The formula that DeepSpeed's schedules are held to is transformers' own."""
    from tests.targets.test_deepspeed import planned_rate

    plan = CASES[name]
    short = replace(plan, schedule=replace(plan.schedule, steps=40))
    rates = answers[version]["rates", name]["rates"]
    assert rates == pytest.approx([planned_rate(short, step) for step in range(40)], rel=1e-9)


@every_version
def test_defaults_of_absent_keys_are_the_release_s_own(version):
    real = class_defaults("training_arguments", version)
    dialect = TARGET.dialect(Version(version))
    checked = 0
    for entry in TRAINING_ARGS.entries:
        keys = [key for key in entry.keys if real.get(key) is not None]
        if not keys or not entry.holds_in(dialect):
            continue
        ours = entry.defaults_at(dialect[entry.package])
        theirs = settle(entry, {key: real[key] for key in keys})
        for slot in ours.keys() & theirs.keys() - {"runtime.output"}:  # the table names one
            assert ours[slot] == theirs[slot], (entry.keys, slot)
            checked += 1
    assert checked >= 20


@every_version
def test_auto_is_filled_in_for_the_keys_that_the_release_fills(version):
    known = {key for key in automatic_keys(version) if not key.startswith("amp.")}
    assert known == FILLED


def test_companions_are_sets_that_are_known_to_work():
    for known in SETS.values():
        if known.consumer == "transformers":
            pins = dict(pin.split("==") for pin in known.companions)
            usual = companions(Version(known.version))
            assert (usual["trl"], usual["peft"]) == (pins["trl"], pins["peft"])
            assert usual["trl"] in TRL_RELEASES.releases
            assert usual["peft"] in PEFT_RELEASES.releases


# ── trl and accelerate ───────────────────────────────────────────────────────────────────────────


@every_version
@every_case
def test_trl_builds_the_planned_adapter_and_quantisation(answers, name, version):
    answer = answers[version].get(("trl sft", name))
    if answer is None:
        return
    plan = CASES[name]
    assert (answer["adapter"] is not None) == (plan.adapter.kind == "lora")
    if answer["adapter"] is not None:
        targets = answer["adapter"]["target_modules"]
        assert answer["adapter"]["use_dora"] == plan.adapter.dora
        if plan.adapter.targets == ("q_proj",):
            assert targets == r"(.*\.)?q_proj"
        elif isinstance(plan.adapter.targets, str):
            assert targets == plan.adapter.targets
        else:
            assert sorted(targets) == sorted(plan.adapter.targets)
    if plan.quantization.format == "nf4":
        assert answer["quantization"]["bnb_4bit_compute_dtype"] == "bfloat16"
        assert answer["quantization"]["bnb_4bit_use_double_quant"] is True


LAUNCHED = ("zero 3", "ddp", "ddp in fp16", "one device")


def launched(name: str, version: str) -> Case:
    plan = CASES[name]
    plan = replace(plan, launch=replace(plan.launch, launcher="accelerate"))
    artifacts, _ = emit(LAUNCH, plan, Version(LAUNCH.latest), software={"accelerate": version})
    files = {each.name: each for each in artifacts if each.name == "accelerate.yaml"}
    delivered = {key: Delivered(key, key, each.text) for key, each in files.items()}
    return replace(
        case(name, VERSIONS[-1]),
        spec=f"{name} {version}",
        target=LAUNCH,
        version=Version(LAUNCH.latest),
        software={"accelerate": version},
        plan=plan,
        delivered=delivered,
        expected=files,
    )


def test_accelerate_loads_its_file_in_every_release():
    """accelerate 0.30.1 to 1.15.0, as they stand beside these releases."""
    pins = [
        dict(pin.split("==") for pin in known.requirements) for known in releases("transformers")
    ]
    checks = verify([launched(name, each["accelerate"]) for each in pins for name in LAUNCHED])
    reasons = {each.reason for each in checks if each.status == "unchecked"}
    if reasons:
        pytest.skip(f"not checked: {reasons}")
    assert len(checks) == len(VERSIONS) * len(LAUNCHED)
    assert [each for each in checks if each.status != "same"] == []


def test_most_cases_reach_trl_in_every_release():
    for version in VERSIONS:
        assert len([key for key in questions(version) if key[0] == "trl sft"]) >= 30


def test_a_run_that_trl_cannot_say_leaves_its_file_out_with_a_note():
    plan = CASES["evaluated"]
    artifacts, (note,) = emit(TARGET, plan, Version("5.23.0"))
    assert "sft.yaml" not in {each.name for each in artifacts}
    assert (note.id, note.severity) == ("file-left-out", "note")
    assert "data.evaluation eval.jsonl" in note.message


# ── dialects ─────────────────────────────────────────────────────────────────────────────────────


def keys(version: str, name: str = "training_args.yaml", case: str = "evaluated") -> set[str]:
    return set(emitted(case, version)[name].values)


def test_evaluation_is_renamed():
    assert "evaluation_strategy" in keys("4.40.2")
    assert "evaluation_strategy" not in keys("4.41.0")
    assert "eval_strategy" in keys("4.41.0")


def test_checkpointing_is_renamed():
    assert "gradient_checkpointing" in keys("5.22.2")
    assert "gradient_checkpointing" not in keys("5.23.0")
    assert "activation_checkpointing" in keys("5.23.0")


def test_what_version_5_removed_is_never_written():
    """MC108."""
    gone = {"no_cuda", "overwrite_output_dir", "group_by_length", "logging_dir"}
    for version in VERSIONS:
        shares = {"warmup_ratio"} if Version(version) >= Version("5.0") else set()
        assert not (gone | shares) & keys(version)


def test_a_named_companion_selects_its_dialect():
    old, _ = emit(TARGET, CASES["ddp"], Version("4.57.6"), software={"trl": "0.17"})
    new, _ = emit(TARGET, CASES["ddp"], Version("4.57.6"))
    args = [
        dict(next(a for a in found if a.name == "model_args.yaml").values) for found in (old, new)
    ]
    assert ["torch_dtype" in each for each in args] == [True, False]
    assert ["dtype" in each for each in args] == [False, True]


def test_an_unsupported_companion_is_refused():
    artifacts, (fault,) = emit(TARGET, CASES["ddp"], Version("4.57.6"), software={"trl": "0.1"})
    assert artifacts == ()
    assert (fault.id, fault.labels[0].path) == ("E0902", "software.trl")


def test_the_optimizer_stands_in_one_place():
    """MC019, MC043: DeepSpeed builds it only where its states are offloaded."""
    assert "optimizer" not in emitted("zero 2", "5.23.0")["ds_config.json"].values
    assert "optimizer" in emitted("offload", "5.23.0")["ds_config.json"].values
    for name in CASES:
        if CASES[name].parallel.engine == "deepspeed":
            assert "scheduler" not in emitted(name, "5.23.0")["ds_config.json"].values


def test_reading_auto_says_nothing_where_the_trainer_fills_it_in():
    document = {
        "train_micro_batch_size_per_gpu": "auto",
        "fp16": {"enabled": "auto", "loss_scale": 0},
        "zero_optimization": {"stage": 3, "stage3_max_live_parameters": "auto"},
    }
    found = {
        each.slot: each
        for each in read(TARGET, {"ds_config.json": found_plain(document)}, Version("5.23.0"))
    }
    assert "batch.micro" not in found
    assert "precision.compute" not in found
    assert found["zero.stage"].rank is Rank.OBSERVED
    assert found["zero.max_live_parameters"].rank is Rank.CONSUMER


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ({"output_dir": "out", "bf16": True}, "training_args.yaml"),
        ({"peft_type": "LORA", "r": 8}, "adapter_config.json"),
        ({"model_name_or_path": "m", "use_peft": True}, "model_args.yaml"),
        ({"model_name_or_path": "m", "output_dir": "out"}, "sft.yaml"),
        ({"zero_optimization": {"stage": 2}}, "ds_config.json"),
        ({"bf16": {"enabled": "auto"}}, "ds_config.json"),
    ],
)
def test_files_are_known_by_what_they_hold(document, name):
    file = recognise(TARGET, document)
    assert file is not None
    assert file.name == name


def test_a_file_of_something_else_is_not_ours():
    for document in ({}, [], None, {"name": "x"}, {"scripts": {"build": "make"}}):
        assert recognise(TARGET, document) is None
