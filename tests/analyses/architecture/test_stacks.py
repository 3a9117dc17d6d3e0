"""What the accounts read besides the modules, on random decoders too: windows, experts, levels."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunec.compiler.analyses.architecture import derive
from tunec.schemas.models.architecture import Experts
from tunec.schemas.models.catalogue import card, card_names

WINDOWED = (
    {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 5},
    {"model_type": "qwen3", "use_sliding_window": True, "max_window_layers": 40},
    {"model_type": "qwen2", "use_sliding_window": False},
    {"model_type": "qwen2_moe", "use_sliding_window": True, "max_window_layers": 7},
    {"model_type": "gemma2", "num_hidden_layers": 9},
    {"model_type": "gemma3_text", "num_hidden_layers": 17},
    {"model_type": "gemma3_text", "sliding_window_pattern": 4},
    {"model_type": "gemma2", "layer_types": ["full_attention"] * 26},
    {"model_type": "cohere2", "num_hidden_layers": 11},
    {"model_type": "olmo3", "num_hidden_layers": 10},
    {"model_type": "smollm3", "use_sliding_window": True, "sliding_window": 128},
    {
        "model_type": "smollm3",
        "use_sliding_window": True,
        "sliding_window": 128,
        "num_hidden_layers": 3,
        "no_rope_layers": [1, 0, 0],
    },
)


@pytest.mark.parametrize("config", WINDOWED)
def test_as_many_layers_are_windowed_as_the_config_class_says(config):
    transformers = pytest.importorskip("transformers")
    real = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    count = real.layer_types.count("sliding_attention")
    (stack,) = derive(config).stacks
    assert stack.windowed_layers == count
    assert stack.window == (real.sliding_window if count else None)


@pytest.mark.parametrize(("window", "count"), [(4096, 32), (None, 0)], ids=["a window", "none"])
def test_mistrals_window_holds_for_all_layers(window, count):
    config = {**card("mistral-7b-v0.1").config, "sliding_window": window}
    (stack,) = derive(config).stacks
    assert (stack.window, stack.windowed_layers) == (window, count)


def test_gpt_neo_has_a_local_layer_for_each_global_one():
    (stack,) = derive({"model_type": "gpt_neo"}).stacks
    assert (stack.window, stack.windowed_layers) == (256, 12)


def test_experts_of_qwen_and_deepseek():
    (qwen,) = derive(card("qwen3-30b-a3b").config).stacks
    assert qwen.experts == Experts(count=128, active=8, ffn=768)
    assert qwen.ffn == 0
    first, rest = derive(card("deepseek-v2-lite").config).stacks
    assert (first.layers, first.ffn, first.experts) == (1, 10944, None)
    assert rest.experts == Experts(count=64, active=6, ffn=1408, shared_ffn=2816)
    assert rest.latent is not None
    assert rest.latent.query_rank == 0
    assert rest.head_dim == 128 + 64


def test_gemma_caps_its_scores_and_its_logits():
    assert derive(card("gemma-2-9b").config).logit_softcap
    assert derive(card("gemma-2-9b").config).stacks[0].softcap
    assert not derive(card("gemma-3-12b").config).logit_softcap


ATTENDS_TO_NOTHING = {"mamba", "falcon_mamba"}
"""State spaces alone, without heads."""


@pytest.mark.parametrize("name", card_names())
def test_projections_are_as_wide_as_the_heads(name):
    architecture = derive(card(name).config)
    stack = architecture.stacks[-1] if architecture.stacks else None
    if stack is None or stack.part != "text" or stack.latent or stack.cross_attention:
        return
    if architecture.family in ATTENDS_TO_NOTHING:
        return
    width, kv_width = stack.heads * stack.head_dim, stack.kv_heads * stack.head_dim
    widths = {}
    for module in architecture.modules:
        if module.part == "text" and module.kind == "linear" and "{}" in module.path:
            widths.setdefault(module.path.rpartition(".")[2], set()).add(module.shape[0])
    apart = (
        *(("q_proj", "k_proj"), ("query", "key"), ("q", "k"), ("q_lin", "k_lin")),
        ("query_proj", "key_proj"),
    )
    query, key = next((pair for pair in apart if pair[0] in widths), ("", ""))
    if query:
        assert width in widths[query], "layers of one model may have other heads than its last"
        assert kv_width in widths[key]
    else:
        fused = next(
            widths[n]
            for n in ("qkv_proj", "query_key_value", "wqkv", "Wqkv", "c_attn", "in_proj")
            if n in widths
        )
        assert width + 2 * kv_width in fused


def test_levels_of_sdxl_are_those_of_the_real_unet(build):
    pytest.importorskip("diffusers")
    architecture = derive(card("sdxl-base-1.0").config)
    model = build(card("sdxl-base-1.0").config, "diffusion")
    kinds = [type(module).__name__ for module in model.modules()]
    assert sum(level.resnets for level in architecture.unet) == kinds.count("ResnetBlock2D")
    transformers = kinds.count("Transformer2DModel")
    assert sum(level.transformers for level in architecture.unet) == transformers
    blocks = sum(level.transformers * level.depth for level in architecture.unet)
    assert blocks == kinds.count("BasicTransformerBlock")


def test_cross_attention_layers_of_llama_vision_are_a_stack_of_their_own():
    *_, plain, crossed = derive(card("llama-3.2-11b-vision").config).stacks
    assert (plain.layers, plain.cross_attention) == (32, 0)
    assert (crossed.layers, crossed.cross_attention) == (8, 4096)


def test_flux_has_double_and_single_blocks():
    double, single = derive(card("flux.1-dev").config).stacks
    assert (double.joint, double.layers) == ("double", 19)
    assert (single.joint, single.layers) == ("single", 38)


@pytest.mark.parametrize(
    ("name", "head", "embedding"),
    [
        ("llama-3.2-1b", "lm_head", "model.embed_tokens"),
        ("glm-4v-9b", "transformer.output_layer", "transformer.embedding.word_embeddings"),
        ("minicpm-v-2_6", "llm.lm_head", "llm.model.embed_tokens"),
        ("internvl2-8b", "language_model.output", "language_model.model.tok_embeddings"),
        ("gemma-3-4b", "lm_head", "model.language_model.embed_tokens"),
    ],
)
def test_head_and_embedding_are_named(name, head, embedding):
    architecture = derive(card(name).config)
    assert (architecture.head, architecture.embedding) == (head, embedding)
    assert any(module.path == embedding for module in architecture.modules)
    assert architecture.tied != any(module.path == head for module in architecture.modules)


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
