"""The architectures of docs/memory-accuracy.md.

Configs are those of the catalogue's cards, or for families without a card the published ones named
here; `layers` cuts the deepest down, since every term of a layer is linear in their number.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

from tunec.schemas.models.catalogue import card

Class = Literal["dense", "moe", "vision-language", "encoder-decoder", "encoder", "diffusion"]


@dataclass(frozen=True, slots=True)
class Model:
    """An architecture of the table."""

    name: str
    kind: Class
    config: dict[str, Any]
    source: str
    layers: int = 0
    """How many layers are left of it; 0: all."""


def _config(
    family: str, hidden: int, ffn: int, layers: int, heads: int, kv: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": family,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        **more,
    }


def _card(name: str, kind: Class, layers: int = 0) -> Model:
    return Model(name, kind, card(name).config, f"card {name}", layers)


def _hub(name: str, kind: Class, config: dict[str, Any], repo: str, layers: int = 0) -> Model:
    return Model(name, kind, config, f"{repo}, config.json", layers)


MODELS: Final = (
    _card("llama-3.1-8b", "dense"),
    _card("llama-3.2-1b", "dense", 8),
    _card("llama-3.2-3b", "dense", 8),
    _card("llama-2-7b", "dense", 8),
    _card("llama-3-70b", "dense", 8),
    _card("tinyllama-1.1b", "dense", 8),
    _card("smollm2-360m", "dense", 8),
    _card("mistral-7b-v0.3", "dense", 8),
    _card("qwen2.5-0.5b", "dense", 8),
    _card("qwen2.5-7b", "dense", 8),
    _card("qwen3-0.6b", "dense", 8),
    _card("qwen3-8b", "dense", 8),
    _card("gemma-2-2b", "dense", 8),
    _card("phi-3-mini", "dense", 8),
    _card("phi-4", "dense", 8),
    _card("glm-4-9b-0414", "dense", 8),
    _card("apertus-8b", "dense"),
    _card("afm-4.5b", "dense"),
    _card("command-r7b", "dense"),
    _card("internlm3-8b", "dense"),
    _card("falcon-h1-7b", "dense"),
    _card("granite-4.0-h-micro", "dense"),
    _card("nemotron-nano-9b-v2", "dense"),
    _hub(
        "gemma-2b",
        "dense",
        _config("gemma", 2048, 16384, 18, 8, 1, 256000, head_dim=256),
        "google/gemma-2b",
        8,
    ),
    _hub(
        "gemma-3-1b",
        "dense",
        _config("gemma3_text", 1152, 6912, 26, 4, 1, 262144, head_dim=256, sliding_window=512),
        "google/gemma-3-1b-pt",
        8,
    ),
    _hub(
        "glm-4-9b-hf",
        "dense",
        _config("glm", 4096, 13696, 40, 32, 2, 151552, head_dim=128, pad_token_id=151329),
        "THUDM/glm-4-9b-chat-hf",
        8,
    ),
    _hub(
        "granite-3-2b",
        "dense",
        _config("granite", 2048, 8192, 40, 32, 8, 49155),
        "ibm-granite/granite-3.0-2b-base",
        8,
    ),
    _hub(
        "olmo2-7b",
        "dense",
        _config("olmo2", 4096, 11008, 32, 32, 32, 100352, pad_token_id=0),
        "allenai/OLMo-2-1124-7B",
        8,
    ),
    _hub(
        "aya-8b",
        "dense",
        _config("cohere", 4096, 14336, 32, 32, 8, 256000),
        "CohereForAI/aya-23-8B",
        8,
    ),
    _hub("phi-2", "dense", _config("phi", 2560, 10240, 32, 32, 32, 51200), "microsoft/phi-2", 8),
    _hub(
        "starcoder2-3b",
        "dense",
        _config("starcoder2", 3072, 12288, 30, 24, 2, 49152, sliding_window=4096),
        "bigcode/starcoder2-3b",
        8,
    ),
    _hub(
        "pythia-1.4b",
        "dense",
        _config("gpt_neox", 2048, 8192, 24, 16, 16, 50304, tie_word_embeddings=False),
        "EleutherAI/pythia-1.4b",
        8,
    ),
    _hub(
        "gpt2-xl",
        "dense",
        {
            "model_type": "gpt2",
            "n_embd": 1600,
            "n_layer": 48,
            "n_head": 25,
            "vocab_size": 50257,
            "n_positions": 2048,
            "resid_pdrop": 0,
            "embd_pdrop": 0,
            "attn_pdrop": 0,
        },
        "openai-community/gpt2-xl (with positions and dropout as stated)",
        8,
    ),
    _hub(
        "opt-2.7b",
        "dense",
        {
            "model_type": "opt",
            "hidden_size": 2560,
            "ffn_dim": 10240,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 50272,
            "word_embed_proj_dim": 2560,
            "dropout": 0,
            "max_position_embeddings": 2048,
        },
        "facebook/opt-2.7b (without dropout)",
        8,
    ),
    _hub(
        "gpt-j-6b",
        "dense",
        {
            "model_type": "gptj",
            "n_embd": 4096,
            "n_layer": 28,
            "n_head": 16,
            "rotary_dim": 64,
            "vocab_size": 50400,
            "n_positions": 2048,
            "resid_pdrop": 0,
            "embd_pdrop": 0,
            "attn_pdrop": 0,
            "tie_word_embeddings": False,
        },
        "EleutherAI/gpt-j-6b",
        6,
    ),
    _hub(
        "starcoderbase-1b",
        "dense",
        {
            "model_type": "gpt_bigcode",
            "n_embd": 2048,
            "n_layer": 24,
            "n_head": 16,
            "n_inner": 8192,
            "vocab_size": 49152,
            "n_positions": 8192,
            "multi_query": True,
            "resid_pdrop": 0,
            "embd_pdrop": 0,
            "attn_pdrop": 0,
        },
        "bigcode/starcoderbase-1b (without dropout)",
        8,
    ),
    _card("opt-350m", "dense"),
    _card("bloom-560m", "dense"),
    _card("olmo-1b", "dense", 8),
    _card("lfm2-350m", "dense"),
    _card("mixtral-8x7b", "moe", 4),
    _card("qwen3-30b-a3b", "moe", 6),
    _card("deepseek-v2-lite", "moe", 6),
    _card("llava-1.5-7b", "vision-language", 8),
    _card("llava-v1.6-mistral-7b", "vision-language", 8),
    _card("qwen2.5-vl-3b", "vision-language", 8),
    _card("qwen2.5-vl-7b", "vision-language", 8),
    _card("gemma-3-4b", "vision-language", 8),
    _card("internvl3-8b", "vision-language", 8),
    _hub(
        "t5-large",
        "encoder-decoder",
        {
            "model_type": "t5",
            "d_model": 1024,
            "d_kv": 64,
            "d_ff": 4096,
            "num_layers": 24,
            "num_decoder_layers": 24,
            "num_heads": 16,
            "vocab_size": 32128,
            "dropout_rate": 0.0,
            "feed_forward_proj": "relu",
        },
        "google-t5/t5-large (without dropout)",
    ),
    _hub(
        "mt5-base",
        "encoder-decoder",
        {
            "model_type": "mt5",
            "d_model": 768,
            "d_kv": 64,
            "d_ff": 2048,
            "num_layers": 12,
            "num_decoder_layers": 12,
            "num_heads": 12,
            "vocab_size": 250112,
            "dropout_rate": 0.0,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
        "google/mt5-base (without dropout)",
    ),
    _hub(
        "t5-small",
        "encoder-decoder",
        {
            "model_type": "t5",
            "d_model": 512,
            "d_kv": 64,
            "d_ff": 2048,
            "num_layers": 6,
            "num_decoder_layers": 6,
            "num_heads": 8,
            "vocab_size": 32128,
            "dropout_rate": 0.0,
            "feed_forward_proj": "relu",
        },
        "google-t5/t5-small (without dropout)",
    ),
    _card("t5-base", "encoder-decoder"),
    _hub(
        "umt5-small",
        "encoder-decoder",
        {
            "model_type": "umt5",
            "d_model": 512,
            "d_kv": 64,
            "d_ff": 1024,
            "num_layers": 8,
            "num_decoder_layers": 8,
            "num_heads": 6,
            "vocab_size": 256384,
            "dropout_rate": 0.0,
            "feed_forward_proj": "gated-gelu",
            "tie_word_embeddings": False,
        },
        "google/umt5-small (without dropout)",
    ),
    _hub(
        "bart-large",
        "encoder-decoder",
        {
            "model_type": "bart",
            "d_model": 1024,
            "encoder_layers": 12,
            "decoder_layers": 12,
            "encoder_attention_heads": 16,
            "decoder_attention_heads": 16,
            "encoder_ffn_dim": 4096,
            "decoder_ffn_dim": 4096,
            "vocab_size": 50265,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "activation_dropout": 0.0,
            "max_position_embeddings": 1024,
        },
        "facebook/bart-large (without dropout)",
    ),
    _card("mbart-large-50", "encoder-decoder"),
    _card("nllb-200-distilled-600m", "encoder-decoder"),
    _card("pegasus-xsum", "encoder-decoder"),
    _hub(
        "bert-large",
        "encoder",
        {
            "model_type": "bert",
            "architectures": ["BertForMaskedLM"],
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "vocab_size": 30522,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
        },
        "google-bert/bert-large-uncased (without dropout)",
        8,
    ),
    _card("sd3-medium", "diffusion"),
    _card("sd3.5-large", "diffusion"),
    _card("flux.1-dev", "diffusion"),
    _card("sdxl-base-1.0", "diffusion"),
    _card("stable-diffusion-v1-5", "diffusion"),
)
BY_NAME: Final = {model.name: model for model in MODELS}
_DEPTH: Final = ("num_hidden_layers", "num_layers", "n_layer")


def config_of(model: Model) -> dict[str, Any]:
    """The model's config with the layers that are left of it."""
    config = dict(model.config)
    if model.layers:
        config = _cut(config, model.layers)
        if isinstance(config.get("text_config"), dict):
            config["text_config"] = _cut(config["text_config"], model.layers)
    return config


def _cut(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """The config with so many layers, and no list that names each of the former ones."""
    depth = {key: layers for key in _DEPTH if key in config}
    lists = ("layer_types", "mlp_layer_types")
    return {k: v for k, v in config.items() if k not in lists} | depth
