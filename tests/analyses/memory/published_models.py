"""Configs of models that published runs train and the catalogue has no card of."""

from typing import Any, Final

from workload_builders import (
    LLAMA_2_7B,
    LLAMA_32_1B,
    LLAMA_32_3B,
    MISTRAL_7B,
    QWEN_25_7B,
)

from tunec.schemas.models.catalogue import card

GEMMA_7B = {
    "model_type": "gemma",
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "vocab_size": 256000,
}
T0_3B = {
    "model_type": "t5",
    "d_model": 2048,
    "d_kv": 64,
    "d_ff": 5120,
    "num_layers": 24,
    "num_decoder_layers": 24,
    "num_heads": 32,
    "vocab_size": 32128,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
}
MT0_XXL = T0_3B | {
    "model_type": "mt5",
    "d_model": 4096,
    "d_ff": 10240,
    "num_heads": 64,
    "vocab_size": 250112,
}
FLAN_T5_XXL = MT0_XXL | {"model_type": "t5", "vocab_size": 32128}
T5_11B = T0_3B | {
    "d_model": 1024,
    "d_kv": 128,
    "d_ff": 65536,
    "num_heads": 128,
    "feed_forward_proj": "relu",
    "tie_word_embeddings": True,
}
GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024}
OPT = {
    "model_type": "opt",
    "num_hidden_layers": 24,
    "vocab_size": 50272,
    "max_position_embeddings": 2048,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_shared_experts": 1,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
}
_QWEN2_VL_TOWER = {
    "model_type": "qwen2_vl",
    "depth": 32,
    "embed_dim": 1280,
    "hidden_size": 1536,
    "mlp_ratio": 4,
    "num_heads": 16,
    "in_chans": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
QWEN2_VL_2B = {
    "model_type": "qwen2_vl",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "vision_config": _QWEN2_VL_TOWER,
}
STARCODER2_15B = {
    "model_type": "starcoder2",
    "hidden_size": 6144,
    "intermediate_size": 24576,
    "num_hidden_layers": 40,
    "num_attention_heads": 48,
    "num_key_value_heads": 4,
    "vocab_size": 49152,
    "max_position_embeddings": 16384,
    "sliding_window": 4096,
    "hidden_act": "gelu_pytorch_tanh",
    "use_bias": True,
    "attention_dropout": 0.1,
    "residual_dropout": 0.1,
    "embedding_dropout": 0.1,
}
BERT_LARGE = {
    "model_type": "bert",
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}
FALCON_180B = {
    "model_type": "falcon",
    "hidden_size": 14848,
    "num_hidden_layers": 80,
    "num_attention_heads": 232,
    "num_kv_heads": 8,
    "vocab_size": 65024,
    "parallel_attn": True,
    "new_decoder_architecture": True,
    "bias": False,
    "alibi": False,
}
_LLAVA_7B = dict(card("llava-1.5-7b").config)
LLAVA_13B = _LLAVA_7B | {
    "text_config": _LLAVA_7B["text_config"]
    | {
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
    }
}
SMOLLM2 = LLAMA_2_7B | {"vocab_size": 49152, "tie_word_embeddings": True}
CONFIGS: Final[dict[str, dict[str, Any]]] = {
    "deepseek-ai/deepseek-coder-1.3b-instruct": LLAMA_2_7B
    | {
        "hidden_size": 2048,
        "intermediate_size": 5504,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "vocab_size": 32256,
    },
    "HuggingFaceTB/SmolLM2-135M": SMOLLM2
    | {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "HuggingFaceTB/SmolLM2-360M": SMOLLM2
    | {
        "hidden_size": 960,
        "intermediate_size": 2560,
        "num_attention_heads": 15,
        "num_key_value_heads": 5,
    },
    "HuggingFaceTB/SmolLM2-1.7B": SMOLLM2
    | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24},
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": LLAMA_2_7B
    | {
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 22,
        "num_key_value_heads": 4,
    },
    "Qwen/Qwen2.5-1.5B-Instruct": QWEN_25_7B
    | {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen1.5-7B": QWEN_25_7B
    | {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 151936,
    },
    "Qwen/Qwen2.5-7B-Instruct": QWEN_25_7B,
    "mistralai/Mistral-7B-Instruct-v0.3": MISTRAL_7B | {"vocab_size": 32768},
    "meta-llama/Llama-3.2-1B-Instruct": LLAMA_32_1B,
    "meta-llama/Llama-3.2-3B-Instruct": LLAMA_32_3B,
    "llama-7b": LLAMA_2_7B,
    "mistralai/Mistral-7B-v0.1": MISTRAL_7B,
    "google/gemma-7b": GEMMA_7B,
    "bigcode/starcoder2-15b": STARCODER2_15B,
    "google/flan-t5-xl": T0_3B,
    "google/flan-t5-xxl": FLAN_T5_XXL,
    "google-t5/t5-large": T0_3B
    | {
        "d_model": 1024,
        "d_ff": 4096,
        "num_heads": 16,
        "feed_forward_proj": "relu",
        "tie_word_embeddings": True,
    },
    "bigscience/bloomz-7b1": {
        "model_type": "bloom",
        "hidden_size": 4096,
        "n_layer": 30,
        "n_head": 32,
        "vocab_size": 250880,
    },
    "facebook/opt-350m": OPT
    | {
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "ffn_dim": 4096,
        "word_embed_proj_dim": 512,
        "dropout": 0.0,
        "do_layer_norm_before": False,
    },
    "facebook/opt-1.3b": OPT
    | {
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "ffn_dim": 8192,
        "word_embed_proj_dim": 2048,
    },
    "gpt2-medium": GPT2 | {"n_embd": 1024, "n_layer": 24, "n_head": 16},
    "gpt2-large": GPT2 | {"n_embd": 1280, "n_layer": 36, "n_head": 20},
    "gpt2-xl": GPT2 | {"n_embd": 1600, "n_layer": 48, "n_head": 25},
    "deepseek-ai/DeepSeek-V3 cut to two layers of 16 experts": DEEPSEEK_V3
    | {
        "num_hidden_layers": 2,
        "first_k_dense_replace": 1,
        "n_routed_experts": 16,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
    },
    "Qwen/Qwen2-VL-2B-Instruct": QWEN2_VL_2B,
    "Qwen/Qwen2-VL-7B-Instruct": QWEN2_VL_2B
    | {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
        "vision_config": _QWEN2_VL_TOWER | {"hidden_size": 3584},
    },
    "bert-large-uncased": BERT_LARGE,
    "google-t5/t5-3b": T5_11B | {"d_ff": 16384, "num_heads": 32},
    "facebook/opt-6.7b": OPT
    | {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "ffn_dim": 16384,
        "word_embed_proj_dim": 4096,
    },
    "tiiuae/falcon-180B": FALCON_180B,
    "llama-33b": LLAMA_2_7B
    | {
        "hidden_size": 6656,
        "intermediate_size": 17920,
        "num_hidden_layers": 60,
        "num_attention_heads": 52,
        "num_key_value_heads": 52,
        "max_position_embeddings": 2048,
    },
    "llama-65b": LLAMA_2_7B
    | {
        "hidden_size": 8192,
        "intermediate_size": 22016,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "max_position_embeddings": 2048,
    },
    "01-ai/Yi-34B": LLAMA_2_7B
    | {
        "hidden_size": 7168,
        "intermediate_size": 20480,
        "num_hidden_layers": 60,
        "num_attention_heads": 56,
        "num_key_value_heads": 8,
        "vocab_size": 64000,
    },
    "codellama/CodeLlama-7b-hf": LLAMA_2_7B
    | {"vocab_size": 32016, "max_position_embeddings": 16384},
    "openlm-research/open_llama_3b_v2": LLAMA_2_7B
    | {
        "hidden_size": 3200,
        "intermediate_size": 8640,
        "num_hidden_layers": 26,
        "max_position_embeddings": 2048,
    },
    "mistralai/Devstral-Small-2507": MISTRAL_7B
    | {
        "hidden_size": 5120,
        "intermediate_size": 32768,
        "num_hidden_layers": 40,
        "head_dim": 128,
        "vocab_size": 131072,
        "sliding_window": None,
        "max_position_embeddings": 131072,
    },
    "mistralai/Ministral-8B-Instruct-2410": MISTRAL_7B
    | {
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "head_dim": 128,
        "vocab_size": 131072,
        "sliding_window": 32768,
    },
    "llava-1.5-13b": LLAVA_13B,
}
"""Each model's config.json on the Hugging Face hub."""
ALSO: Final = {"Qwen/Qwen2.5-Coder-1.5B-Instruct": "Qwen/Qwen2.5-1.5B-Instruct"}
"""Models with the config of another."""
