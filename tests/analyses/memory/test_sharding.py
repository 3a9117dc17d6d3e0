"""Bytes per parameter against DeepSpeed 0.19.8, traced with real tensors on a CPU.

A model of 40 equal layers, bf16, gradient clipping, torch's fused AdamW, four ranks of a fake
process group, buckets of 1000 elements; storages counted while the engine ran its fourth step.
"""

from typing import Any

import pytest
from workload_builders import LLAMA_32_1B, MIXED, full, layout, model

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.fetches import live_elements
from tunec.compiler.analyses.memory.modules import is_stack
from tunec.compiler.analyses.memory.partitions import largest_partitions
from tunec.compiler.analyses.memory.reductions import AFTER
from tunec.compiler.analyses.memory.sharding import Sharding, sharding
from tunec.compiler.analyses.memory.terms.gathering import gathered
from tunec.compiler.analyses.memory.terms.gradients import (
    at_embedding,
    at_last_layer,
    at_reduction,
    at_reduction_on_the_way,
    kept_gradients,
    reduction_elements,
)
from tunec.compiler.analyses.memory.terms.optimizer import optimizer_states, optimizer_step
from tunec.compiler.analyses.memory.terms.resident_gradients import resident_gradients
from tunec.compiler.analyses.memory.terms.weights import second_shards, weights
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.frozen import replace
from tunec.schemas.models.catalogue import card

MODEL = model(
    LLAMA_32_1B
    | {"hidden_size": 512, "intermediate_size": 2048, "vocab_size": 128, "num_hidden_layers": 40}
    | {"num_attention_heads": 8}
)
FULL = full(MODEL)
SMALL: dict[str, Any] = {
    "reduce_bucket": 0,
    "prefetch_bucket": 0,
    "persistence_threshold": 0,
    "max_live_parameters": 0,
    "max_reuse_distance": 0,
}
FP32_GRADIENTS = MIXED | {"gradients": "fp32"}


def plan(stage: int, *, ranks: int = 4, accumulation: int = 1, **changes: Any) -> Sharding:
    states = {**MIXED, **SMALL, **changes}
    made = layout(engine="deepspeed", world=ranks, stage=stage, accumulation=accumulation, **states)
    return sharding(FULL, made.parallel, made.states, made.zero, accumulates=accumulation > 1)


def per_parameter(*groups: Any) -> float:
    return sum(sum(terms.values()) for terms in groups) / count(FULL).trainable


def live(made: Sharding, workload: Workload = FULL) -> float:
    states, gradients = optimizer_states(workload, made), resident_gradients(workload, made)
    return per_parameter(weights(workload, made), states, gradients)


@pytest.mark.parametrize(
    ("stage", "states", "traced"),
    [
        (0, MIXED, 14.0),
        (1, MIXED, 5.0),
        (1, FP32_GRADIENTS, 9.0),
        (2, MIXED, 5.0),
        (2, FP32_GRADIENTS, 5.0),
        (3, MIXED, 4.0),
        (3, FP32_GRADIENTS, 4.5),
    ],
)
def test_state_between_steps(stage: int, states: dict[str, Any], traced: float) -> None:
    assert live(plan(stage, **states)) == pytest.approx(traced, rel=0.001)


def test_state_between_steps_on_64_ranks() -> None:
    assert live(plan(2, ranks=64)) == pytest.approx(2.19, abs=0.005)


@pytest.mark.parametrize(
    ("stage", "states", "accumulation", "traced"),
    [
        (0, MIXED, 1, 18.0),
        (1, MIXED, 1, 7.5),
        (1, FP32_GRADIENTS, 1, 13.0),
        (2, MIXED, 1, 5.546),
        (2, MIXED, 2, 6.046),
        (2, FP32_GRADIENTS, 1, 6.545),
    ],
)
def test_peak_of_the_backward_pass(
    stage: int, states: dict[str, Any], accumulation: int, traced: float
) -> None:
    made = plan(stage, accumulation=accumulation, **states)
    stay = {"gradients": float(made.parameter * made.kept)}
    moments = [at_last_layer(made), {**at_embedding(made), **stay}, at_reduction(made)]
    moments += [at_reduction_on_the_way(made, one) for one in made.reductions]
    found = live(made) + max(map(per_parameter, moments))
    assert found == pytest.approx(traced, rel=0.03)


@pytest.mark.parametrize(
    ("stage", "states", "traced"),
    [
        (0, MIXED, 20.0),
        (1, MIXED, 7.0),
        (1, FP32_GRADIENTS, 11.0),
        (2, MIXED, 7.0),
        (2, FP32_GRADIENTS, 6.1),
        (3, MIXED, 5.5),
        (3, FP32_GRADIENTS, 5.5),
    ],
)
def test_peak_of_the_optimizer_step(stage: int, states: dict[str, Any], traced: float) -> None:
    made = plan(stage, **states)
    found = live(made) + per_parameter(optimizer_step(FULL, made))
    assert found == pytest.approx(traced, rel=0.02)


@pytest.mark.parametrize(
    ("stage", "states", "traced"),
    [
        (0, MIXED, 16.0),
        (1, MIXED, 7.0),
        (1, FP32_GRADIENTS, 11.0),
        (2, MIXED, 5.5),
        (2, FP32_GRADIENTS, 6.0),
        (3, MIXED, 4.0),
    ],
)
def test_gradients_that_accumulate(stage: int, states: dict[str, Any], traced: float) -> None:
    made = plan(stage, accumulation=2, **states)
    assert live(made) + per_parameter(kept_gradients(made)) == pytest.approx(traced, rel=0.003)


@pytest.mark.parametrize(
    ("live_share", "reuse_share", "checkpointed", "traced"),
    [
        (0.1, 0.1, False, 0.1),
        (0.1, 0.4, False, 0.2),
        (0.1, 1.0, False, 0.5),
        (0.1, 1.6, False, 0.8),
        (0.1, 0.4, True, 0.1375),
        (0.1, 1.0, True, 0.3375),
        (0.1, 1.6, True, 0.5375),
        (0.4, 0.2, False, 0.4),
        (0.2, 50.0, False, 1.0),
    ],
)
def test_parameters_whole_at_the_turn(
    live_share: float, reuse_share: float, checkpointed: bool, traced: float
) -> None:
    total = count(FULL).base
    made = plan(
        3,
        max_live_parameters=int(live_share * total),
        max_reuse_distance=int(reuse_share * total),
    )
    whole = gathered(made, checkpointed=checkpointed)["gathered parameters"]
    assert whole / (2 * total) == pytest.approx(traced, abs=0.013)


def test_a_stack_of_experts_is_prefetched_before_its_biases() -> None:
    """At the turn of gpt-oss the head is whole, and the first stack of the last layer; traced."""
    config = dict(card("gpt-oss-20b").config)
    zero = plan(3, max_live_parameters=10**9, prefetch_bucket=28_800).zero
    found = live_elements(model(config), zero, checkpointed=True, blocks=False)
    stack = config["num_local_experts"] * config["hidden_size"] * 2 * config["intermediate_size"]
    biases = config["num_local_experts"] * 2 * config["intermediate_size"]
    head = config["vocab_size"] * config["hidden_size"]
    assert head + stack <= found.turn <= head + stack + biases


def test_reduce_buckets_keep_their_size_however_little_is_trained() -> None:
    one = plan(2, reduce_bucket=500_000_000)
    two = plan(2, reduce_bucket=500_000_000, overlap_comm=True)
    assert at_last_layer(one)["reduce buckets"] == 1e9
    assert at_last_layer(two)["reduce buckets"] == 2e9
    assert "reduce buckets" not in at_last_layer(plan(2, contiguous_gradients=False))
    assert "reduce buckets" not in kept_gradients(one)


def test_a_rank_keeps_whole_every_gradient_that_it_owns_a_piece_of() -> None:
    large = full(model(LLAMA_32_1B))
    embedding, part = LLAMA_32_1B["vocab_size"] * 2048, count(large).trainable // 8
    found = [largest_partitions(large, ranks)[0] for ranks in (1, 8)]
    assert found[0].elements == count(large).trainable
    assert found[1].elements >= embedding > part
    assert found[1].piece <= part


def test_stage_0_reduces_at_most_half_a_billion_elements_at_once() -> None:
    large = full(model(LLAMA_32_1B))
    assert reduction_elements(count(large)) == 500_000_000
    assert reduction_elements(count(FULL)) == count(FULL).trainable


def test_ddp_holds_a_second_copy_of_all_gradients() -> None:
    alone = account(FULL, layout()).phases["loss forward"]
    among = account(FULL, layout(engine="ddp", world=4)).phases["loss forward"]
    added = {name: among[name] - alone.get(name, 0) for name in among}
    assert {n: size for n, size in added.items() if size} == {
        "gradient buckets": 2 * count(FULL).trainable
    }


def test_a_full_bucket_is_reduced_before_the_gradient_that_does_not_fit() -> None:
    """Every reduction copies what lies in the bucket; the last one is what is left."""
    bucket = 10_000_000
    made = plan(3, reduce_bucket=bucket)
    assert made.reductions
    assert all(one.filled <= bucket or one.filled == one.copied for one in made.reductions)
    assert all(one.apart > 0 for one in made.reductions if one.inside)
    assert plan(2, reduce_bucket=bucket).reductions != made.reductions


def test_what_one_rank_owns_alone_is_not_copied() -> None:
    """torch's flatten_dense_tensors copies no single tensor: one rank's piece is reduced as is."""
    alone = plan(2, ranks=1, reduce_bucket=10_000_000)
    among = plan(2, ranks=64, reduce_bucket=10_000_000)
    assert max(one.copied for one in alone.reductions) == 0
    assert max(one.copied for one in among.reductions) > 0


def test_second_shards_come_with_the_first_release_and_stay_for_the_step() -> None:
    """Traced with deepspeed 0.19.8 on Qwen2.5-0.5B: half the model's bytes on two ranks."""
    made = plan(3, ranks=8, hpz_partition=2)
    whole = second_shards(made)
    assert whole == count(FULL).base
    assert gathered(made, checkpointed=True)["second shards"] == pytest.approx(whole)
    kept = plan(3, ranks=8, hpz_partition=2, max_live_parameters=10**12)
    assert gathered(kept, checkpointed=True)["second shards"] == 0
    assert second_shards(plan(3, ranks=8)) == second_shards(plan(2, ranks=8, hpz_partition=2)) == 0


def test_a_bucket_that_holds_every_gradient_leaves_no_part_of_a_rank_before_the_end() -> None:
    """The buffer of a rank's own gradients comes with the first reduction."""
    whole = plan(2, reduce_bucket=10**9)
    assert not whole.holds(AFTER)
    assert "gradient partition" not in at_last_layer(whole)
    assert "gradient partition" in at_last_layer(plan(2, reduce_bucket=10**6))


def test_stage_3_copies_no_gradient_that_it_reduces_alone() -> None:
    """Unless the ranks' parts of it differ in size."""
    even, odd = plan(3), plan(3, ranks=3)
    assert all(one.copied == 0 for one in even.reductions)
    assert any(one.copied > 0 for one in odd.reductions)


def test_experts_with_adapters_are_freed() -> None:
    """PEFT adds adapters to a copy, of which the graph keeps views; traced for DeepSeek-V2-Lite."""
    found = model(dict(card("deepseek-v2-lite").config))
    how = {"checkpointed": False, "blocks": False}
    stacks = [module for module in found.modules if is_stack(module)]
    adapted = frozenset(module.path for module in stacks)
    kept, freed = (live_elements(found, plan(3).zero, adapted=e, **how) for e in ((), adapted))
    elements = sum(module.parameters for module in stacks)
    assert kept.turn - freed.turn == pytest.approx(elements, rel=0.01)


def test_the_turn_gathers_the_head_and_the_experts_that_are_needed_next() -> None:
    """gpt-oss-20b with adapted experts, as the coordinator of DeepSpeed 0.19.8 counts in a step.

    At the head 844,554,240 elements, the last layer's second stack among them, which PEFT's outer
    module reads first; 1,378,344,960 when the loss is differentiated.
    """
    found = model(dict(card("gpt-oss-20b").config))
    adapted = frozenset(m.path for m in found.modules if ".self_attn." in m.path or is_stack(m))
    sizes = {"prefetch_bucket": 7464960, "persistence_threshold": 28800}
    sizes |= {"max_live_parameters": 10**9, "max_reuse_distance": 10**9}
    zero = replace(plan(3).zero, **sizes)
    live = live_elements(found, zero, checkpointed=True, blocks=False, adapted=adapted)
    assert live.turn == pytest.approx(1378344960, rel=0.003)
