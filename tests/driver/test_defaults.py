"""What nobody says: published practice by method, size and length, and memory that is left free."""

from typing import get_args

import pytest
from planning import codes, decided, planned

from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.passes.defaults import (
    BATCH,
    BATCH_TOKENS,
    DEFAULTS,
    OF_ANSWERS,
    OF_FIELDS,
    RATES,
    Aim,
)


def data(sequence):
    return {"train": "train.jsonl", "samples": 10_000, "sequence": sequence}


def test_every_row_is_of_a_slot_and_has_a_source():
    assert {each.slot for each in DEFAULTS} <= set(SLOTS)
    assert all(each.source for each in DEFAULTS)
    assert len({(each.slot, each.when) for each in DEFAULTS}) == len(DEFAULTS)


def test_for_every_aim_there_is_a_rate_of_any_size():
    aims = {(each.method, each.aim) for each in RATES}
    assert aims == {(each.method, each.aim) for each in RATES if not each.above}
    assert len(aims) == 2 * len(get_args(Aim))


@pytest.mark.parametrize(
    ("model", "method", "rate"),
    [
        ("llama-3.2-1b", "lora", 2e-4),
        ("llama-2-13b", "qlora", 2e-4),
        ("qwen2.5-32b", "qlora", 1e-4),
        ("llama-3.1-70b", "qlora", 1e-4),
        ("llama-3.1-70b", "lora", 1e-4),
        ("llama-3.1-8b", "full", 2e-5),
        ("llama-3.1-70b", "full", 1e-5),
    ],
)
def test_rate_by_method_and_size(model, method, rate):
    plan = decided(model=model, method=method, hardware="h100-x8-n4", data=data(1024))
    assert plan.optimizer.learning_rate == rate


def test_rate_by_objective_and_optimizer():
    dpo = decided(method="full", objective="dpo")
    assert dpo.optimizer.learning_rate == 5e-7
    lion = decided(method="full", train={"optimizer": "lion"})
    assert lion.optimizer.learning_rate == 4e-6
    assert (
        decided(train={"optimizer": "lion", "learning_rate": 1e-4}).optimizer.learning_rate == 1e-4
    )


@pytest.mark.parametrize(
    ("sequence", "devices", "batch"),
    [(512, 2, 32), (16_384, 2, 32), (32_768, 2, 16), (65_536, 8, 8), (65_536, 16, 16)],
)
def test_a_step_sees_so_many_tokens_at_most_but_a_sample_on_every_device(sequence, devices, batch):
    hardware = f"h200-x{min(devices, 8)}-n{max(1, devices // 8)}"
    plan = decided(hardware=hardware, data=data(sequence))
    assert (plan.parallel.world, plan.batch.global_) == (devices, batch)
    assert plan.batch.global_ * sequence <= max(BATCH_TOKENS.value, devices * sequence)


def test_pairs_of_answers_count_twice():
    pairs = decided(method="lora", objective="dpo", hardware="h200-x2", data=data(16_384))
    assert pairs.batch.global_ == BATCH.value // 2


def test_a_row_of_a_field_is_what_a_plan_has():
    plan = decided(method="qlora")
    own = [each for each in OF_FIELDS if not isinstance(each.value, str) or each.when == "QLoRA"]
    assert len(own) > 5
    for each in own:
        assert plan[each.slot] == each.value, each.slot


@pytest.mark.parametrize(
    "objective", ["dpo", {"grpo": {"rewards": ["accuracy_reward"]}}], ids=("DPO", "GRPO")
)
def test_a_row_of_an_objective_is_what_a_plan_has(objective):
    plan = decided(method="lora", objective=objective)
    name = plan.objective.kind.upper()
    own = [each for each in OF_ANSWERS if each.when == name and not isinstance(each.value, str)]
    assert own
    for each in own:
        assert plan[each.slot] == each.value, each.slot


@pytest.mark.parametrize(
    ("trl", "hardware", "objective", "compute", "is_told"),
    [
        ("1.16.0", "t4-x1", "sft", "fp32", True),
        ("0.25.1", "t4-x1", "sft", "fp16", False),
        ("0.28.0", "t4-x1", "dpo", "fp16", False),
        ("0.29.1", "t4-x1", "dpo", "fp32", True),
        ("1.16.0", "rtx-4090-x1", "sft", "bf16", False),
    ],
)
def test_fp16_is_lost_where_trl_makes_adapters_bf16(trl, hardware, objective, compute, is_told):
    found = planned(
        model="llama-3.2-1b",
        method="qlora",
        hardware=hardware,
        objective=objective,
        software={"trl": trl},
    )
    assert found.plan is not None, found.diagnostics
    assert found.plan.precision.compute == compute
    assert ("half-precision-ruled-out" in codes(found)) == is_told


@pytest.mark.parametrize(
    ("model", "hardware", "precision", "compute"),
    [
        ("flan-t5-large", "v100-sxm2-16g-x4", {}, "fp32"),
        ("flan-t5-large", "v100-sxm2-16g-x4", {"precision": "fp16"}, "fp16"),
        ("flan-t5-large", "rtx-3090-x1", {}, "bf16"),
        ("gemma-3-1b", "t4-x1", {}, "fp32"),
        ("glm-4-9b-chat", "v100-sxm2-32g-x8", {}, "fp32"),
        ("chatglm3-6b", "v100-sxm2-32g-x8", {}, "fp16"),
        ("qwen3-1.7b", "t4-x1", {}, "fp16"),
    ],
)
def test_a_model_that_overflows_fp16_is_given_fp32(model, hardware, precision, compute):
    found = planned(model=model, method="lora", hardware=hardware, **precision)
    assert found.plan is not None, found.diagnostics
    assert found.plan.precision.compute == compute
    assert ("half-precision-ruled-out" in codes(found)) == (compute == "fp32")


def test_a_model_that_overflows_is_not_helped_by_an_earlier_trl():
    given = {"model": "gemma-3-1b", "method": "qlora", "hardware": "t4-x1"}
    found = planned(**given, software={"trl": "1.16.0"})
    told = next(each for each in found.diagnostics if each.id == "half-precision-ruled-out")
    assert told.help == "use devices with bf16"


@pytest.mark.parametrize("field", ["checkpoints", "evaluations"])
def test_so_many_times_over_a_run_of_unknown_length_is_told(field):
    files = {"train": "train.jsonl", "evaluation": "dev.jsonl", "sequence": 1024}
    asked = {"epochs": 2, field: 5}
    assert "times-not-placed" in codes(planned(data=files, train=asked))
    assert "times-not-placed" not in codes(planned(data={**files, "samples": 1000}, train=asked))


def test_as_many_saves_as_epochs_need_no_length():
    found = planned(data={"train": "train.jsonl"}, train={"epochs": 2, "checkpoints": 2})
    assert "times-not-placed" not in codes(found)
    assert found.plan.schedule.save_steps is None


CASES = [
    ("llama-3.1-8b", "full", "a100-80g-x8", 4096),
    ("llama-3.1-8b", "full", "h100-80g-x2", 2048),
    ("llama-3.1-8b", "qlora", "a100-80g-x1", 8192),
    ("llama-3.1-8b", "lora", "a100-80g-x4", 8192),
    ("llama-3.2-3b", "lora", "t4-x1", 4096),
    ("llama-3.2-1b", "qlora", "t4-x1", 1024),
    ("qwen2.5-7b", "qlora", "rtx-4090-x1", 2048),
]


def of(model, method, hardware, sequence, **budget):
    return planned(
        model=model,
        method=method,
        hardware=hardware,
        data={"train": "train.jsonl", "samples": 10_000, "sequence": sequence},
        budget=budget,
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_reserve_is_left_unless_that_costs_a_tenth_of_the_speed(case):
    found = of(*case)
    devices = found.plan.devices
    left = devices.budget - found.memory.required_bytes
    assert devices.budget == devices.memory
    assert 0.049 < devices.reserve / devices.memory < 0.051
    assert (left < devices.reserve) == ("reserve-spent" in codes(found))
    if left < devices.reserve:
        kept = of(*case, gpu_memory=f"{devices.budget - devices.reserve}B")
        assert kept.plan is None or kept.time.step_seconds > 1.09 * found.time.step_seconds


def test_it_is_left_in_some_cases_and_spent_in_others():
    assert len({"reserve-spent" in codes(of(*case)) for case in CASES}) == 2


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_budget_that_is_given_is_taken_as_it_is(case):
    whole, unsaid = of(*case, gpu_memory="100%"), of(*case)
    assert whole.plan.devices.reserve == 0
    assert "reserve-spent" not in codes(whole)
    assert whole.time.samples_per_second >= unsaid.time.samples_per_second * 0.99
