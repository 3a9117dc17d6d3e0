"""Every card and every family against the class that transformers or diffusers builds."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.cards import family, one_of_each_family, require_tower

from tunec.compiler.analyses.architecture import derive
from tunec.schemas.models.catalogue import card, card_names

pytest.importorskip("transformers")
pytest.importorskip("diffusers")

REMOTE = {"chatglm", "minicpmv", "internvl_chat", "VisualGLMModel"}
"""Families that their own repository's code builds."""


def native_cards() -> list[str]:
    return [name for name in card_names() if family(name) not in REMOTE]


@pytest.mark.parametrize("name", one_of_each_family(native_cards()))
def test_a_card_is_the_real_model(name, build, agree):
    require_tower(name)
    found = card(name)
    architecture = derive(found.config, found.processor)
    agree(architecture, build(found.config, architecture.kind))


def components() -> Iterator[tuple[str, Mapping[str, Any]]]:
    seen = []
    for name in card_names():
        for component in card(name).components:
            if component.config and component.config not in seen:
                seen.append(component.config)
                yield f"{name} {component.part} {len(seen)}", component.config


@pytest.mark.parametrize("config", [pytest.param(c, id=name) for name, c in components()])
def test_a_component_is_the_real_model(config, build, agree):
    architecture = derive(config)
    assert architecture.by_part.keys() == {"vae" if "_class_name" in config else "text_encoder"}
    agree(architecture, build(config, architecture.kind))


SMALL_VIT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "image_size": 56,
    "patch_size": 14,
}
CLIP = {"model_type": "clip_vision_model", **SMALL_VIT}
SIGLIP = {"model_type": "siglip_vision_model", **SMALL_VIT}
TEXT = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
UNET = {
    "_class_name": "UNet2DConditionModel",
    "block_out_channels": [32, 64],
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "cross_attention_dim": 48,
}

FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi",
    "phi3",
    "starcoder2",
    "gpt_neox",
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
    "deepseek_v3",
    "gpt2",
    "gpt_bigcode",
    "gptj",
    "codegen",
    "gpt_neo",
    "bloom",
    "falcon",
    "mpt",
    "opt",
    "llava",
    "llava_next",
    "gemma3",
    "internvl",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "mllama",
    "t5",
    "mt5",
    "umt5",
    "bart",
    "plbart",
    "mbart",
    "m2m_100",
    "pegasus",
    "marian",
    "blenderbot",
    "blenderbot-small",
    "bert",
    "roberta",
    "xlm-roberta",
    "clip_text_model",
)

VARIANTS: tuple[dict[str, Any], ...] = (
    *({"model_type": family} for family in FAMILIES),
    {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "head_dim": 64},
    {"model_type": "qwen2", "num_key_value_heads": None, "num_hidden_layers": 3},
    {"model_type": "phi", "qk_layernorm": True, "tie_word_embeddings": True},
    {"model_type": "stablelm", "qk_layernorm": True, "use_parallel_residual": True},
    {"model_type": "stablelm", "use_qkv_bias": True, "num_key_value_heads": 8},
    {"model_type": "cohere", "use_qk_norm": True, "num_hidden_layers": 2},
    {"model_type": "starcoder2", "use_bias": False, "num_hidden_layers": 2},
    {"model_type": "granite", "mlp_bias": True, "attention_bias": True},
    {"model_type": "gpt_neox", "attention_bias": False, "num_hidden_layers": 2},
    {"model_type": "gpt2", "n_inner": 77, "tie_word_embeddings": False},
    {"model_type": "gpt_bigcode", "multi_query": False},
    {"model_type": "gptj", "tie_word_embeddings": True, "n_layer": 2},
    {"model_type": "gpt_neo", "attention_types": [[["global", "local"], 2]], "num_layers": 4},
    {"model_type": "bloom", "n_embed": 128},
    {"model_type": "opt", "word_embed_proj_dim": 512, "do_layer_norm_before": False},
    {"model_type": "opt", "enable_bias": False, "layer_norm_elementwise_affine": False},
    {"model_type": "opt", "_remove_final_layer_norm": True},
    {
        "model_type": "falcon",
        "new_decoder_architecture": True,
        "num_kv_heads": 8,
        "hidden_size": 8192,
        "num_attention_heads": 128,
    },
    {"model_type": "falcon", "num_ln_in_parallel_attn": 2, "num_hidden_layers": 2},
    {"model_type": "falcon", "parallel_attn": False, "multi_query": False, "bias": True},
    {
        "model_type": "qwen2_moe",
        "decoder_sparse_step": 2,
        "mlp_only_layers": [1, 3],
        "num_hidden_layers": 9,
    },
    {"model_type": "deepseek_v2", "num_experts_per_tok": 6},
    {
        "model_type": "deepseek_v2",
        "num_experts_per_tok": 6,
        "q_lora_rank": None,
        "first_k_dense_replace": 1,
        "attention_bias": True,
    },
    {"model_type": "deepseek_v3", "num_hidden_layers": 5, "n_shared_experts": 3},
    {"model_type": "llava", "vision_config": SIGLIP, "text_config": TEXT},
    {
        "model_type": "llava",
        "vision_config": CLIP,
        "text_config": {**TEXT, "tie_word_embeddings": True},
        "vision_feature_layer": [-2, -1],
        "multimodal_projector_bias": False,
    },
    {"model_type": "llava_next", "vision_config": CLIP, "text_config": TEXT},
    {"model_type": "gemma3", "vision_config": {**SIGLIP, "vision_use_head": False}},
    {
        "model_type": "internvl",
        "tie_word_embeddings": False,
        "text_config": {**TEXT, "model_type": "qwen3", "num_key_value_heads": 2},
        "vision_config": {
            **SMALL_VIT,
            "attention_bias": True,
            "use_qk_norm": True,
            "norm_type": "rms_norm",
            "use_mask_token": True,
            "use_absolute_position_embeddings": False,
            "use_mean_pooling": False,
        },
    },
    {
        "model_type": "qwen2_vl",
        "text_config": {
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
        },
        "vision_config": {"model_type": "qwen2_vl", "hidden_size": 64, "mlp_ratio": 2},
    },
    {"model_type": "qwen3_vl", "vision_config": {"deepstack_visual_indexes": [3]}},
    {"model_type": "mllama", "text_config": {"num_hidden_layers": 5}},
    {
        "model_type": "mllama",
        "text_config": {"cross_attention_layers": [0, 4], "num_hidden_layers": 6},
        "vision_config": {"max_num_tiles": 2, "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]]},
    },
    {"model_type": "t5", "feed_forward_proj": "gated-gelu", "num_decoder_layers": 3},
    {"model_type": "t5", "architectures": ["T5EncoderModel"]},
    {"model_type": "umt5", "architectures": ["UMT5EncoderModel"]},
    {"model_type": "bart", "tie_word_embeddings": False, "decoder_layers": 3},
    {
        "model_type": "marian",
        "share_encoder_decoder_embeddings": False,
        "decoder_vocab_size": 58200,
        "tie_word_embeddings": False,
    },
    {"model_type": "bert", "architectures": ["BertForMaskedLM"]},
    {"model_type": "bert", "architectures": ["BertForMaskedLM"], "tie_word_embeddings": False},
    {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"]},
    {"model_type": "clip_text_model", "architectures": ["CLIPTextModelWithProjection"]},
    UNET,
    {**UNET, "layers_per_block": [1, 3], "attention_head_dim": [2, 4]},
    {**UNET, "use_linear_projection": True, "transformer_layers_per_block": [2, 3]},
    {**UNET, "cross_attention_dim": [24, 48]},
    {"_class_name": "UNet2DConditionModel", "time_embedding_dim": 64},
    {"_class_name": "SD3Transformer2DModel", "num_layers": 5},
    {
        "_class_name": "SD3Transformer2DModel",
        "num_layers": 6,
        "dual_attention_layers": [0, 1, 4],
        "qk_norm": "rms_norm",
    },
    {"_class_name": "FluxTransformer2DModel", "num_layers": 2, "num_single_layers": 3},
    {"_class_name": "FluxTransformer2DModel", "in_channels": 384, "out_channels": 64},
    {"_class_name": "AutoencoderKL"},
    {
        "_class_name": "AutoencoderKL",
        "block_out_channels": [32, 64],
        "down_block_types": ["DownEncoderBlock2D"] * 2,
        "up_block_types": ["UpDecoderBlock2D"] * 2,
        "mid_block_add_attention": False,
        "use_quant_conv": False,
    },
)


@pytest.mark.parametrize(
    "config", [pytest.param(c, id=" ".join(map(str, c.values()))[:60]) for c in VARIANTS]
)
def test_a_variant_is_the_real_model(config, build, agree):
    architecture = derive(config)
    agree(architecture, build(config, architecture.kind))
