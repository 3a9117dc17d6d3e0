"""Dense decoders of random widths, ties and biases are the models that transformers builds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunec.compiler.analyses.architecture import derive

pytest.importorskip("transformers")

FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi3",
    "starcoder2",
    "cohere",
    "cohere2",
    "olmo",
    "olmo2",
    "olmo3",
    "granite",
    "smollm3",
    "glm",
    "glm4",
    "stablelm",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "olmoe",
    "granitemoe",
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    kv_heads = draw(st.integers(1, 4))
    heads = kv_heads * draw(st.integers(1, 3))
    head_dim = 2 * draw(st.integers(4, 8))
    config: dict[str, Any] = {
        "model_type": draw(st.sampled_from(FAMILIES)),
        "hidden_size": heads * head_dim,
        "num_hidden_layers": draw(st.integers(1, 7)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": 4 * draw(st.integers(1, 30)),
        "vocab_size": draw(st.integers(10, 99)),
        "tie_word_embeddings": draw(st.booleans()),
        "pad_token_id": None,
    }
    flags = ("attention_bias", "mlp_bias", "use_bias", "use_qkv_bias", "qkv_bias", "use_qk_norm")
    config |= draw(st.dictionaries(st.sampled_from(flags), st.booleans()))
    # These three have no `head_dim` of their own: setting one gives a model that cannot run.
    if config["model_type"] not in ("cohere2", "stablelm", "olmoe"):
        config |= draw(st.sampled_from(({}, {"head_dim": 16})))
    if "moe" in config["model_type"] or config["model_type"] == "mixtral":
        experts = {"num_experts": 5, "num_local_experts": 5, "moe_intermediate_size": 12}
        config |= {**experts, "shared_expert_intermediate_size": 20, "decoder_sparse_step": 2}
    return config


@given(config=configs())
def test_a_random_decoder_is_the_real_model(config, build, agree):
    architecture = derive(config)
    agree(architecture, build(config, "causal-lm"))


@given(config=configs())
def test_layers_of_the_stacks_are_the_layers_of_the_config(config):
    architecture = derive(config)
    assert sum(stack.layers for stack in architecture.stacks) == config["num_hidden_layers"]
    assert all(
        stack.windowed_layers <= config["num_hidden_layers"] for stack in architecture.stacks
    )
    assert architecture.tied is config["tie_word_embeddings"]
