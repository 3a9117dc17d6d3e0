"""The dtypes of training state, as runs of deepspeed 0.19.8 and peft 0.21 showed them.

`tests/rehearse` runs some of these rows again; the fp16 rows were run on a CPU that was told to
take fp16.
"""

import pytest
from tests.driver.planning import planned, spec_of

import tunec

ROWS = {
    # method, compute, stage: base weights, trainable, gradients, master weights
    ("lora", "bf16", 0): ("bf16", "bf16", "bf16", True),
    ("lora", "bf16", 1): ("bf16", "bf16", "bf16", True),
    ("lora", "bf16", 2): ("bf16", "bf16", "bf16", True),
    ("lora", "bf16", 3): ("bf16", "fp32", "bf16", True),
    ("lora", "fp32", 0): ("fp32", "fp32", "fp32", False),
    ("lora", "fp32", 1): ("fp32", "fp32", "fp32", True),
    ("lora", "fp32", 2): ("fp32", "fp32", "fp32", True),
    ("lora", "fp32", 3): ("fp32", "fp32", "fp32", True),
    ("lora", "fp16", 1): ("fp16", "fp16", "fp16", True),
    ("lora", "fp16", 2): ("fp16", "fp16", "fp16", True),
    ("full", "bf16", 3): ("bf16", "bf16", "bf16", True),
    ("full", "fp32", 3): ("fp32", "fp32", "fp32", True),
}


def made(method, compute, stage, deepspeed="0.19.8"):
    return planned(
        model="smollm2-360m",
        method=method,
        data={"train": "train.jsonl", "samples": 1000, "sequence": 512},
        hardware="a100-80g-x8",
        software={"deepspeed": deepspeed},
        pin={"parallel.engine": "deepspeed", "zero.stage": stage, "precision.compute": compute},
    )


@pytest.mark.parametrize(("row", "expected"), ROWS.items(), ids=str)
def test_states_are_those_of_a_real_run(row, expected):
    plan = made(*row).plan
    assert plan is not None
    states = plan.states
    found = (states.weights, states.trainable, states.gradients, states.master_weights)
    assert found == expected
    assert states.optimizer == "fp32"
    assert not states.autocast


@pytest.mark.parametrize(
    ("objective", "trl", "trainable"),
    [
        ("sft", "0.27.2", "bf16"),
        *(("dpo", "0.28.0", "fp32"), ("dpo", "0.29.1", "bf16")),
        *(("reward", "0.25.1", "fp32"), ("reward", "0.26.2", "bf16")),
    ],
)
def test_trl_casts_adapters_over_a_quantised_base_by_trainer(objective, trl, trainable):
    found = planned(
        model="smollm2-360m",
        method="qlora",
        objective=objective,
        data={"train": "train.jsonl", "samples": 1000, "sequence": 512},
        hardware="a100-80g-x1",
        software={"trl": trl},
    )
    assert found.plan is not None
    assert found.plan.states.trainable == trainable


def test_until_0_19_2_the_engine_casts_adapters_at_stage_3():
    plan = made("lora", "bf16", 3, deepspeed="0.18.9").plan
    assert plan is not None
    assert plan.states.trainable == "bf16"


@pytest.mark.parametrize(
    ("method", "deepspeed", "reentrant"),
    [("lora", "0.18.9", True), ("lora", "0.19.8", False), ("full", "0.18.9", False)],
)
def test_frozen_weights_are_recomputed_by_reentrance_before_0_19_3(method, deepspeed, reentrant):
    """tests/lints/consumers/test_trainer.py has the real engine fail by the other variant."""
    plan = planned(
        model="smollm2-360m",
        method=method,
        data={"train": "train.jsonl", "samples": 1000, "sequence": 512},
        hardware="a100-80g-x8",
        software={"deepspeed": deepspeed},
        pin={"zero.stage": 3, "activation_checkpointing.mode": "layer"},
    ).plan
    assert plan is not None
    assert plan.activation_checkpointing.reentrant is reentrant


@pytest.mark.parametrize(
    ("model", "method", "reentrant"),
    [
        ("deepseek-v2-lite", "lora", True),
        ("deepseek-v2-lite", "full", False),
        ("mixtral-8x7b", "lora", False),
    ],
)
def test_frozen_experts_before_shared_ones_are_recomputed_by_reentrance(model, method, reentrant):
    """By the other variant ZeRO-3 has them twice: the rows of docs/memory-accuracy.md show both."""
    found = planned(
        model=model,
        method=method,
        data={"train": "train.jsonl", "samples": 1000, "sequence": 512},
        hardware="a100-80g-x8",
        pin={"zero.stage": 3, "activation_checkpointing.mode": "layer"},
    )
    assert found.plan is not None
    assert found.plan.activation_checkpointing.reentrant is reentrant
    decided = found.ledger.winner("activation_checkpointing.reentrant")
    assert decided is not None
    assert ("twice" in decided.reason) is reentrant


@pytest.mark.parametrize(
    ("method", "compute", "why"),
    [
        ("lora", "fp16", "does not scale the loss of fp32 adapters"),
        ({"lora": {"also_train": ["embed_tokens"]}}, "bf16", "parameters of one dtype"),
    ],
    ids=["fp16", "also_train"],
)
def test_what_fp32_adapters_rule_out_at_stage_3(method, compute, why):
    found = made(method, compute, 3)
    assert found.plan is None
    assert [each.id for each in found.diagnostics] == ["E0702"]
    assert why in " ".join(found.diagnostics[0].notes)
    assert made(method, compute, 3, deepspeed="0.19.1").plan is not None
    assert made(method, compute, 2).plan is not None


@pytest.mark.parametrize(("target", "weights"), [("trl", "fp32"), ("llamafactory", "fp16")])
def test_a_base_in_fp16_is_widened_where_the_trainer_does_not_widen_its_copies(target, weights):
    given = {"model": "qwen2.5-1.5b-instruct", "hardware": "v100-32g-x1", "batch": {"global": 4}}
    beside = {"lora": {"also_train": ["embed_tokens"]}}
    found = tunec.plan(spec_of(**given, method=beside), targets=[target])
    assert found.ok, found.diagnostics
    assert (found.plan["states.weights"], found.plan["states.trainable"]) == (weights, "fp32")


@pytest.mark.parametrize(
    ("changes", "pin", "gradients"),
    [
        ({}, {"batch.micro": 2}, "fp32"),
        ({}, {"batch.micro": 4}, "bf16"),
        ({}, {"batch.micro": 2, "zero.stage": 3}, "fp32"),
        ({}, {"batch.micro": 2, "states.gradients": "bf16"}, "bf16"),
        ({}, {"batch.micro": 2, "zero.offload_optimizer": "cpu"}, "bf16"),
        ({"method": "lora"}, {"batch.micro": 2}, "bf16"),
        ({"train": {"optimizer": "muon"}}, {"batch.micro": 2}, "bf16"),
    ],
    ids=str,
)
def test_micro_batches_are_added_up_in_fp32(changes, pin, gradients):
    asked = {"parallel.engine": "deepspeed", "zero.stage": 2, **pin}
    given = {"model": "llama-3.2-1b", "method": "full", "hardware": "a100-80g-x8"}
    found = planned(**{**given, "batch": {"global": 32}, **changes}, pin=asked)
    assert found.plan is not None, found.diagnostics
    assert found.plan.states.gradients == gradients
    winner = found.ledger.winner("states.gradients")
    assert ("accumulated in fp32" in winner.reason) == (gradients == "fp32")


@pytest.mark.parametrize("budget", ["26GiB", "100%"])
def test_a_sum_that_the_engine_has_in_fp32_alone_is_not_narrowed(budget):
    """DeepSpeed before 0.17.6 refuses sums in bf16 without ZeRO, however little memory there is."""
    found = planned(
        model="llama-3.2-1b",
        method="full",
        hardware="a100-80g-x8",
        batch={"global": 32},
        software={"deepspeed": "0.16.9"},
        budget={"gpu_memory": budget},
        pin={"parallel.engine": "deepspeed", "zero.stage": 0, "batch.micro": 1},
    )
    assert found.plan is not None
    assert found.plan.states.gradients == "fp32"


@pytest.mark.parametrize(("objective", "runs"), [("sft", True), ("dpo", False), ("reward", True)])
def test_trl_before_0_29_makes_norms_fp32_beside_packed_pairs(objective, runs):
    """trl 0.17 trainer/dpo_trainer.py prepares for bits whatever FSDP is to shard; the others ask
    where the packed base lies (`is_sharded_qlora`)."""
    found = planned(
        model="smollm2-360m",
        method="qlora",
        objective=objective,
        engine="fsdp",
        data={"train": "train.jsonl", "samples": 1000, "sequence": 512},
        hardware="a100-80g-x2",
        software={"trl": "0.17.0", "transformers": "4.51.3"},
        pin={"fsdp.version": 1},
    )
    assert (found.plan is not None) == runs
    if runs:
        assert (found.plan.states.weights, found.plan.states.trainable) == ("bf16", "fp32")
    else:
        assert "FSDP 1 flattens only one dtype" in " ".join(found.diagnostics[0].notes)


def test_a_class_that_recomputes_no_layers_is_not_asked_to():
    """transformers' MPNet, whose trainer would stop: `supports_gradient_checkpointing` is false."""

    def asked(**more):
        data = {"train": "a.jsonl", "sequence": 512}
        return planned(model="mpnet-base", method="full", data=data, **more)

    made = asked(pin={"activation_checkpointing.mode": "layer"})
    (refused,) = [each for each in made.diagnostics if each.id == "E0702"]
    assert "the class of mpnet recomputes no layers" in refused.notes[-1]
    plan = asked().plan
    assert plan is not None
    assert plan.activation_checkpointing.mode == "none"
