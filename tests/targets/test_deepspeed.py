"""ds_config.json against six real DeepSpeed releases: what they resolve is what the plan says."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from packaging.version import Version
from tests.plans import FP16, FP32, NVME, OFFLOAD, ZERO_0, ZERO_1, ZERO_3, plan_of

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.schemas import ds_config_defaults
from tunec.compiler.consumers.sets import choose
from tunec.compiler.emit import emit
from tunec.compiler.ir.ledger import Definition, Ledger, Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_plain, read, settle
from tunec.compiler.target import Found
from tunec.targets.deepspeed.target import TARGET
from tunec.targets.deepspeed.verify import BUILT
from tunec.targets.huggingface.target import TARGET as TRAINER

VERSIONS = TARGET.releases
STEPS = 40


def schedule(kind: str, warmup: int, steps: int | None = STEPS) -> Mapping[str, Any]:
    length = {"schedule.steps": steps, "schedule.warmup_share": None}
    return {"schedule.kind": kind, "schedule.warmup_steps": warmup, **length}


def kernel(name: str, code: str) -> Mapping[str, Any]:
    return {"optimizer.name": name, "optimizer.kernel": code}


PURE_BF16 = {"states.master_weights": False, "states.optimizer": "bf16"}
CASES: Mapping[str, Plan] = {
    "zero 2": plan_of(),
    "zero 1": plan_of(ZERO_1),
    "zero 3": plan_of(ZERO_3),
    "zero 0": plan_of(ZERO_0),
    "zero 0, gradients in fp32": plan_of(ZERO_0, {"states.gradients": "fp32"}),
    "zero 0 in fp16": plan_of(ZERO_0, FP16),
    "zero 0 in fp16, gradients in fp32": plan_of(ZERO_0, FP16, {"states.gradients": "fp32"}),
    "zero 0 in fp32": plan_of(ZERO_0, FP32),
    "zero 2, gradients in fp32": plan_of({"states.gradients": "fp32"}),
    "zero 1, gradients in fp32": plan_of(ZERO_1, {"states.gradients": "fp32"}),
    "offload": plan_of(OFFLOAD),
    "offload, buffers not pinned": plan_of(OFFLOAD, {"zero.pin_memory": False}),
    "zero 3, offload": plan_of(ZERO_3, OFFLOAD, {"zero.offload_param": "cpu"}),
    "zero 3 on nvme": plan_of(NVME),
    "zero 2 in fp16": plan_of(FP16),
    "zero 3 in fp16": plan_of(FP16, ZERO_3),
    "zero 2 in fp32": plan_of(FP32),
    "not clipped": plan_of({"optimizer.max_grad_norm": 0.0}),
    "foreach": plan_of(kernel("adamw", "foreach")),
    "loop": plan_of(kernel("adamw", "loop")),
    "own": plan_of(kernel("adamw", "own")),
    "sgd": plan_of(kernel("sgd", "foreach")),
    "sgd fused": plan_of(kernel("sgd", "fused")),
    "lion": plan_of(kernel("lion", "own")),
    "muon": plan_of(kernel("muon", "own"), {"zero.reduce_scatter": False}),
    "muon, zero 3": plan_of(kernel("muon", "own"), ZERO_3),
    "lion offloaded": plan_of(kernel("lion", "own"), OFFLOAD),
    "pure bf16": plan_of(PURE_BF16),
    **{
        f"{kind}, warm-up {warmup}": plan_of(schedule(kind, warmup))
        for kind in ("constant_with_warmup", "linear", "cosine")
        for warmup in (0, 1, 2, 10)
    },
    "constant": plan_of(schedule("constant", 0, None)),
}
UNSAYABLE: Mapping[str, Mapping[str, str]] = {"pure bf16": {"until": "0.18.3"}}
"""Cases that older releases have no key for."""


def sayable(name: str, version: str) -> bool:
    bounds = UNSAYABLE.get(name, {})
    return Version(version) >= Version(bounds.get("until", "0"))


@cache
def written(name: str, version: str):
    (artifact,), diagnostics = emit(TARGET, CASES[name], Version(version))
    return artifact, diagnostics


def question(name: str, version: str) -> dict[str, Any]:
    artifact, _ = written(name, version)
    return {
        "verb": "resolve",
        "config": dict(artifact.values),
        "world_size": CASES[name].parallel.data,
        "capability": [8, 0],
        "steps": STEPS,
    }


HANDED_ON = tuple(name for name in CASES if not name.startswith(("own", "loop", "sgd fused")))
"""Cases that the Trainer has words for too, and hands on to DeepSpeed in a file of its own."""


@cache
def handed_on(name: str, version: str):
    """ds_config.json as the huggingface target writes it for this release of DeepSpeed."""
    latest = Version(TRAINER.latest)
    artifacts, faults = emit(TRAINER, CASES[name], latest, software={"deepspeed": version})
    return next(each for each in artifacts if each.name == "ds_config.json"), faults


def handed_on_question(name: str, version: str) -> dict[str, Any]:
    config = dict(handed_on(name, version)[0].values)
    client = {"adamw": "AdamW", "sgd": "SGD", "lion": "SGD", "muon": "SGD"}[
        CASES[name].optimizer.name
    ]
    chosen = {} if "optimizer" in config else {"client_optimizer": client}
    return {**question(name, version), "config": config, "steps": 0, **chosen}


def questions(version: str) -> dict[str, dict[str, Any]]:
    every = [name for name in CASES if sayable(name, version)]
    plain = {name: question(name, version) for name in every}
    trainer = {f"trainer: {n}": handed_on_question(n, version) for n in every if n in HANDED_ON}
    return plain | trainer


def told(version: str) -> dict[str, Any]:
    asked = questions(version)
    environment = prepare(choose("deepspeed", version).requirements)
    replies = ask(environment, "tunec.targets.deepspeed.consumer", list(asked.values()))
    return {name: heard(reply) for name, reply in zip(asked, replies, strict=True)}


def heard(reply: dict[str, Any]) -> dict[str, Any]:
    """An answer, without what this machine refuses: Lion has no code for a CPU at all."""
    refused = reply["refused"]
    if refused and "not been implemented on CPU backend" in refused["message"]:
        return {**reply, "refused": None, "engine": None}
    return reply


@pytest.fixture(scope="module")
def answers():
    """Each release's answers to all cases, asked once."""
    return {version: told(version) for version in VERSIONS}


every_case = pytest.mark.parametrize("name", CASES)
every_version = pytest.mark.parametrize("version", VERSIONS)


@every_version
@every_case
def test_a_plan_is_refused_exactly_where_the_release_refuses_it(answers, name, version):
    if not sayable(name, version):
        assert {each.id for each in written(name, version)[1]} == {"E0901"}
        return
    _, diagnostics = written(name, version)
    refused = answers[version][name]["refused"]
    assert bool(refused) == bool(diagnostics), (refused, diagnostics)
    assert {each.id for each in diagnostics} <= {"E0905"}


@every_version
@every_case
def test_resolved_values_are_the_plan(answers, name, version):
    """Every key, absent ones too, read back from what the release itself resolved."""
    answer = answers[version].get(name)
    if answer is None or answer["refused"]:
        return
    plan, dialect = CASES[name], TARGET.dialect(Version(version))
    assert answer["ignored"] == []
    found = {key: Found(value) for key, value in answer["values"].items() if value is not None}
    ledger = Ledger().add(read(TARGET, {"ds_config.json": found}, Version(version)))
    resolved = {each.slot: each.value for each in ledger.winners()}
    for entry in TARGET.files[0].entries:
        if entry.keys and entry.holds_in(dialect) and entry.when(plan):
            for slot in entry.slots:
                assert resolved[slot] == plan[slot], slot


@every_version
@every_case
def test_the_engine_computes_and_accumulates_as_planned(answers, name, version):
    answer = answers[version].get(name)
    if answer is None or answer["engine"] is None:
        return
    plan, engine = CASES[name], answer["engine"]
    words = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    assert engine["model_dtype"].removeprefix("torch.") == words[plan.precision.compute]
    accumulates = engine["gradient_accumulation_dtype"].removeprefix("torch.")
    assert accumulates == words[plan.states.gradients]


@every_version
@every_case
def test_the_engine_builds_the_planned_optimizer(answers, name, version):
    answer = answers[version].get(name)
    if answer is None or answer["engine"] is None:
        return
    plan = CASES[name]
    offloaded = plan.zero.offload_optimizer != "none"
    key = (plan.optimizer.name, plan.optimizer.kernel, offloaded)
    assert answer["engine"]["optimizer"] == BUILT[key]


@every_version
@pytest.mark.parametrize("name", HANDED_ON)
def test_the_trainer_s_file_starts_the_engine_as_planned(answers, name, version):
    """With the optimizer that the Trainer brings, or DeepSpeed's own where it is offloaded."""
    answer = answers[version].get(f"trainer: {name}")
    if answer is None:
        return
    faults = [each for each in handed_on(name, version)[1] if each.severity == "error"]
    assert bool(answer["refused"]) == bool(faults), (answer["refused"], faults)
    assert answer["ignored"] == []
    if answer["engine"] is not None:
        model = answer["engine"]["model_dtype"].removeprefix("torch.")
        words = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
        assert model == words[CASES[name].precision.compute]


def planned_rate(plan: Plan, step: int) -> float:
    """The rate of an optimizer step: transformers optimization.py `get_*_schedule_with_warmup`."""
    from math import cos, pi

    warmup, last, high = (
        plan.schedule.warmup_steps,
        plan.schedule.steps,
        plan.optimizer.learning_rate,
    )
    if step < warmup:
        return high * step / warmup
    if plan.schedule.kind in ("constant", "constant_with_warmup"):
        return high
    share = (step - warmup) / max(1, last - warmup)
    return high * (1 - share if plan.schedule.kind == "linear" else (1 + cos(pi * share)) / 2)


@every_version
@every_case
def test_the_rate_follows_the_plan_a_step_behind(answers, name, version):
    """DeepSpeed's schedules lag one step: each rate lies between the plan's of now and of before.

    Up to 0.15.1 the first step runs at the full rate. No warm-up is shorter than two steps, so that
    a plan with a shorter one lags three steps, and its first two run lower.
    """
    answer = answers[version].get(name)
    if answer is None or answer["engine"] is None or CASES[name].schedule.steps != STEPS:
        return
    plan, rates = CASES[name], answer["engine"]["rates"]
    lag = 1 if plan.schedule.warmup_steps > 1 else 3
    for step in range(lag, STEPS):
        held = [planned_rate(plan, each) for each in range(step - lag, step + 1)]
        tolerance = 1e-9 * plan.optimizer.learning_rate
        assert min(held) - tolerance <= rates[step] <= max(held) + tolerance, step


@every_version
def test_a_constant_rate_is_constant_from_the_first_step(answers, version):
    for name in ("constant", "constant_with_warmup, warm-up 0"):
        rate = CASES[name].optimizer.learning_rate
        assert answers[version][name]["engine"]["rates"] == [rate] * STEPS


@every_version
def test_defaults_of_absent_keys_are_the_release_s_own(version):
    """Each `absent` of the table is what the release does, by the table of its real defaults."""
    real = ds_config_defaults(version)
    dialect = TARGET.dialect(Version(version))
    checked = 0
    for entry in TARGET.files[0].entries:
        keys = [key for key in entry.keys if real.get(key) is not None]
        if not keys or not entry.holds_in(dialect):
            continue
        ours = entry.defaults_at(dialect[entry.package])
        theirs = settle(entry, {key: real[key] for key in keys})
        for slot in ours.keys() & theirs.keys():
            assert ours[slot] == theirs[slot], (entry.keys, slot)
            checked += 1
    assert checked >= 20


def read_plain(document: Mapping[str, Any]) -> dict[str, Definition]:
    documents = {"ds_config.json": found_plain(document)}
    return {each.slot: each for each in read(TARGET, documents, Version("0.19.8"))}


def test_auto_means_the_default_to_deepspeed_itself():
    """MC004, and `bf16.enabled: auto` handed to plain DeepSpeed: a model drops the word."""
    document = {
        "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
        "bf16": {"enabled": "auto"},
    }
    found = {
        d.slot: d
        for d in read(TARGET, {"ds_config.json": found_plain(document)}, Version("0.19.8"))
    }
    assert found["precision.compute"].value == "fp32"
    assert found["precision.compute"].rank is Rank.CONSUMER
    assert found["zero.reduce_bucket"].value == 500_000_000
    assert found["zero.stage"].rank is Rank.OBSERVED


def test_an_older_file_offloads_by_a_flag():
    document = {"zero_optimization": {"stage": 2, "cpu_offload": True}}
    found = {
        d.slot: d.value
        for d in read(TARGET, {"ds_config.json": found_plain(document)}, Version("0.19.8"))
    }
    assert found["zero.offload_optimizer"] == "cpu"


def test_the_product_of_the_batch_is_left_out_where_zero_init_reads_the_file():
    """MC003: at stage 3 the world size is not known yet when the file is first read."""

    def keys(plan: Plan) -> set[str]:
        return set(emit(TARGET, plan, Version("0.19.8"))[0][0].values)

    assert "train_batch_size" in keys(plan_of())
    assert "train_batch_size" not in keys(plan_of(ZERO_3))


def test_a_client_optimizer_is_admitted_and_told():
    """MC044: DeepSpeed cannot build it, so the file only lets it in, and the warning says so."""
    plan = plan_of(kernel("paged_adamw_8bit", "bitsandbytes"), {"states.optimizer": "int8"})
    (artifact,), (warning,) = emit(TARGET, plan, Version("0.19.8"))
    assert artifact.values["zero_allow_untested_optimizer"] is True
    assert "optimizer" not in artifact.values
    assert (warning.id, warning.severity) == ("optimizer-left-to-script", "warning")


def test_the_target_needs_its_engine():
    artifacts, (fault,) = emit(TARGET, plan_of({"parallel.engine": "ddp"}), Version("0.19.8"))
    assert artifacts == ()
    assert fault.id == "E0903"
    assert fault.message == "deepspeed needs parallel.engine deepspeed, but the plan has ddp"


def test_second_shards_and_leaf_modules_are_written_where_they_are_named():
    named = {"zero.hpz_partition": 8, "zero.leaf_modules": ("Qwen3MoeSparseMoeBlock",)}
    plain = {"zero.hpz_partition": 1, "zero.leaf_modules": None}
    for changes, written in ((named, True), (plain, False)):
        files, _ = emit(TARGET, plan_of(ZERO_3, changes), Version("0.19.8"))
        section = json.loads(files[0].text)["zero_optimization"]
        assert ("zero_hpz_partition_size" in section) is written
        assert ("leaf_module" in section) is written
