"""Families whose attention or linear layers are their own, against traces of the real modules."""

from typing import Any

import pytest
from workload_builders import full, layout, model

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.ir.slots import AttentionKernel
from tunec.compiler.tracing.subject import Subject

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("deepspeed")

from tests.recording.traces import run

SMALL: dict[str, Any] = {"num_hidden_layers": 3, "vocab_size": 1000}
FALCON = SMALL | {"model_type": "falcon", "bias": False, "alibi": False, "multi_query": True}
CODEGEN = {"model_type": "codegen", "n_embd": 1024, "n_layer": 3, "n_head": 16, "rotary_dim": 32}
CONFIGS: dict[str, dict[str, Any]] = {
    "falcon": FALCON | {"hidden_size": 512, "num_attention_heads": 8},
    "falcon with groups": FALCON
    | {"hidden_size": 1024, "num_attention_heads": 16, "num_kv_heads": 4}
    | {"new_decoder_architecture": True},
    "codegen": CODEGEN | {"vocab_size": 1000, "resid_pdrop": 0, "tie_word_embeddings": False},
}
PLANS: dict[str, Layout] = {
    "plain": layout(2),
    "one sample": layout(1),
    "recomputed": layout(2, checkpointed=True),
}


def error(name: str, plan: Layout) -> float:
    options = {"sequence": 1024, "packing": False, "attention": AttentionKernel("sdpa")}
    workload = full(model(CONFIGS[name]), **options)
    traced = max(each.peak_bytes for each in run(Subject(CONFIGS[name], workload, plan)).phases)
    return account(workload, plan).peak_bytes / traced - 1


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", CONFIGS)
def test_full_training_is_within_3_percent(name: str, plan: str) -> None:
    assert abs(error(name, PLANS[plan])) < 0.03


@pytest.mark.parametrize("checkpointed", [False, True])
def test_stage_3_cannot_free_weights_of_which_views_are_kept(checkpointed: bool) -> None:
    """FalconLinear multiplies with `weight.T`, which the graph of every kept layer holds."""
    few = {"max_live_parameters": 0, "max_reuse_distance": 0, "prefetch_bucket": 0}
    plan = layout(
        1, checkpointed=checkpointed, engine="deepspeed", world=4, stage=3, accumulation=2, **few
    )
    assert -0.01 < error("falcon", plan) < 0.03
