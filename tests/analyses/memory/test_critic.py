"""PPO's critic: what it has on the devices beside the actor, in its turn and out of it."""

from typing import Any

import pytest
from tests.machines import A100
from workload_builders import FP32, LLAMA_32_1B, full, layout

from tunec.compiler.analyses.architecture.classifiers import for_task
from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.analyses.memory.account import (
    account,
    largest_micro_batch,
    least_bytes,
    required_bytes,
)
from tunec.compiler.analyses.memory.workload import USUAL_FSDP, Critic, InTurns, Layout, Workload
from tunec.compiler.analyses.time.account import step_time
from tunec.schemas.frozen import replace
from tunec.schemas.spec_sections import A_VALUE

TINY = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
SEEN = {"weights": 288_644, "gradients": 288_644, "states": 577_288}
"""Bytes of a rank of two that verl 0.9.1's own engine had of this model as a critic, on a CPU with
torch 2.13.0: workers/engine/fsdp/transformer_impl.py `FSDPEngineWithValueHead` under FSDP 2 with
fp32 weights. Gradients were there until the turn ended, and the other two stayed."""
CRITIC = "critic "


def fsdp(micro: int = 1, **changes: Any) -> Layout:
    shards = {"fsdp": USUAL_FSDP, "engine": "fsdp", "world": 2, **FP32, "autocast": True}
    return layout(micro, **shards | changes)


def alone(config: dict[str, Any], *, values: bool = False) -> Workload:
    """One of the two models, as if it were trained alone."""
    asked = for_task(config, A_VALUE) if values else config
    return full(derive(asked), packing=False, sequence=512)


def both(config: dict[str, Any], epochs: int = 1, **changes: Any) -> Workload:
    critic = Critic(alone(config, values=True), epochs)
    return replace(alone(config), critic=critic, **changes)


def test_the_critic_has_what_verls_engine_had():
    phases = account(both(TINY), fsdp()).phases
    backward = phases["critic optimizer step"]
    assert backward["critic trained weights"] == pytest.approx(SEEN["weights"], rel=0.001)
    assert backward["critic optimizer states"] == pytest.approx(SEEN["states"], rel=0.001)
    assert backward["critic gradients"] == pytest.approx(SEEN["gradients"], rel=0.001)


def test_what_one_model_has_stays_while_the_other_trains():
    phases = account(both(LLAMA_32_1B), fsdp()).phases
    critic, actor = phases["critic optimizer step"], phases["optimizer step"]
    for phase in (critic, actor):
        assert {"trained weights", "optimizer states"} < {*phase}
        assert {"critic trained weights", "critic optimizer states"} < {*phase}
    assert "gradients" in actor
    assert "critic gradients" not in actor
    assert "critic gradients" in critic
    assert "gradients" not in critic


def test_a_turn_needs_what_a_run_of_the_critic_alone_needs():
    own = account(alone(LLAMA_32_1B, values=True), fsdp(2)).phases
    turn = account(both(LLAMA_32_1B), fsdp(2)).phases
    names = [name for name in own if f"{CRITIC}{name}" in turn]
    assert {"loss backward", "optimizer step"} < {*names}
    for name in names:
        found = turn[f"{CRITIC}{name}"]
        critics = {each.removeprefix(CRITIC): found[each] for each in found if CRITIC in each}
        assert critics == own[name], name


def test_a_value_head_has_no_logits_of_the_vocabulary():
    phases = account(both(LLAMA_32_1B), fsdp(4)).phases
    logits = phases["loss backward"]["logits and loss"]
    value = phases["critic loss backward"]["critic logits and loss"]
    assert value * derive(LLAMA_32_1B).vocab == pytest.approx(logits, rel=0.2)


def test_a_model_that_waits_is_on_the_host():
    turns = InTurns(1, "none", 256, True, sleeps=True, training_waits=True)
    stays = both(LLAMA_32_1B, preference=replace(turns, training_waits=False))
    waits = both(LLAMA_32_1B, preference=turns)
    critic = account(waits, fsdp()).phases["critic optimizer step"]
    assert "trained weights" not in critic
    assert "critic trained weights" in critic
    actor = account(waits, fsdp()).phases["optimizer step"]
    assert "trained weights" in actor
    assert "critic trained weights" not in actor
    assert account(waits, fsdp()).peak_bytes < account(stays, fsdp()).peak_bytes
    host = account(waits, fsdp()).host
    weights = 4 * derive(for_task(LLAMA_32_1B, A_VALUE)).parameters
    assert host.phases["training"]["critic training that waits"] == pytest.approx(3 * weights)


def test_the_search_counts_both_models():
    workload, plan = both(LLAMA_32_1B), fsdp()
    budget = 60 * 10**9
    micro = largest_micro_batch(workload, plan, budget)
    assert 0 < micro < largest_micro_batch(alone(LLAMA_32_1B), plan, budget)
    assert required_bytes(workload, fsdp(micro)) <= budget
    assert required_bytes(workload, fsdp(micro + 1)) > budget
    assert least_bytes(workload, plan) < required_bytes(workload, plan)
    assert least_bytes(workload, plan) > 1.8 * least_bytes(alone(LLAMA_32_1B), plan)


def test_a_step_takes_the_time_of_both_models_and_of_the_values():
    one = step_time(alone(LLAMA_32_1B), fsdp(), A100).terms
    two = step_time(both(LLAMA_32_1B), fsdp(), A100).terms
    assert {name: seconds for name, seconds in two.items() if CRITIC not in name} == one
    assert two["critic values"] == pytest.approx(two["critic forward"], rel=0.05)
    assert two["critic optimizer step"] == pytest.approx(one["optimizer step"], rel=0.3)
    again = step_time(both(LLAMA_32_1B, epochs=3), fsdp(), A100).terms
    assert again["backward"] == 3 * two["backward"]
    assert again["critic backward"] == 3 * two["critic backward"]
    assert again["critic values"] == two["critic values"]
