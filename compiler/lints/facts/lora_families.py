"""Layer names of families by what their repositories are called.

For models that are not in the catalogue: what nobody takes for another family's model is told by
its repository's name, and the names of its layers are those of the class in transformers 5.23.0,
models/*/modeling_*.py (Linear, Conv1D and Embedding modules; listed from the classes themselves),
for Baichuan, InternLM, InternLM2 and Qwen of 2023 those of modeling_*.py in their repositories.
Heads are left out, as every family has one. Names that a class had elsewhere stand beside them:
experts of their own before transformers 5, phi-1_5's first code.
"""

import re
from collections.abc import Mapping
from typing import Final

_APART: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
_GATED: Final = ("gate_proj", "up_proj", "down_proj", "embed_tokens")
_LLAMA: Final = (*_APART, *_GATED)
_BERT: Final = ("query", "key", "value", "dense", "word_embeddings", "position_embeddings")
_BART: Final = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "embed_tokens")
_BIAS: Final = "relative_attention_bias"
_FUSED: Final = ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")
_GPT2: Final = ("c_attn", "c_proj", "c_fc", "wte", "wpe")

FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    r"(^|/)(meta-)?llama-(2|3|3\.[0-3])-|(^|/)llama-(7|13|30|65)b": ("Llama", _LLAMA),
    r"(^|/)(codellama|tinyllama|vicuna|open_llama|smollm2?)[-_]": ("Llama", _LLAMA),
    r"(^|/)(yi-(1\.5-)?\d+b|deepseek-(llm|coder)-[\d.]+b)": ("Llama", _LLAMA),
    r"(^|/)(mistral-(7b|nemo)|zephyr-7b)": ("Mistral", _LLAMA),
    r"(^|/)mixtral-8x": ("Mixtral", (*_APART, "embed_tokens", "w1", "w2", "w3", "gate")),
    r"(^|/)(qwen(1\.5|2|2\.5|3)-(coder-|math-)?[\d.]+b|qwq-32b)": (
        "Qwen",
        (*_LLAMA, "gate", "shared_expert_gate"),
    ),
    r"(^|/)qwen2(\.5)?-vl-": ("Qwen2-VL", (*_LLAMA, "qkv", "proj", "fc1", "fc2", "0", "2")),
    r"(^|/)(code)?gemma-((1\.1-)?[27]b|2-)": ("Gemma", _LLAMA),
    r"(^|/)phi-(1|1_5|1\.5|2)$": (
        "Phi-2",
        ("q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2", "embed_tokens", "Wqkv", "out_proj"),
    ),
    r"(^|/)stablelm-(2|3b|zephyr)-": ("StableLM", _LLAMA),
    r"(^|/)starcoder2-\d+b": ("StarCoder2", (*_APART, "c_fc", "c_proj", "embed_tokens")),
    r"(^|/)(c4ai-command-r|aya-(23|expanse))": ("Cohere", _LLAMA),
    r"(^|/)deepseek-(v[23](\.\d)?|coder-v2)(-|$)": (
        "DeepSeek-V2",
        (
            *("q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"),
            *(*_GATED, "gate"),
        ),
    ),
    r"(^|/)internlm-(chat-)?\d+b": ("InternLM", _LLAMA),
    r"(^|/)(bert|roberta|xlm-roberta)-(base|large)": ("BERT", (*_BERT, "token_type_embeddings")),
    r"(^|/)distilbert-base-": (
        "DistilBERT",
        (
            *("q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2", "pre_classifier"),
            *("word_embeddings", "position_embeddings"),
        ),
    ),
    r"(^|/)deberta-v[23]-": (
        "DeBERTa",
        ("query_proj", "key_proj", "value_proj", "dense", "word_embeddings", "position_embeddings"),
    ),
    r"^openai/whisper-": ("Whisper", (*_BART, "embed_positions", "conv1", "conv2")),
    r"^facebook/m?bart-": ("BART", (*_BART, "embed_positions", "shared")),
    r"bloomz?[-_]": ("BLOOM", (*_FUSED, "word_embeddings")),
    r"falcon-?(rw-|7b|40b|180b)": ("Falcon", (*_FUSED, "word_embeddings")),
    r"pythia-|gpt-neox": ("GPT-NeoX", (*_FUSED, "embed_in", "embed_out", "lm_head")),
    r"chatglm\d?-": ("ChatGLM", (*_FUSED, "word_embeddings", "output_layer")),
    r"^(openai-community/|)(distil)?gpt2(-medium|-large|-xl|)$": ("GPT-2", _GPT2),
    r"starcoder(base|plus|)(-\d+b|)$|santacoder": ("GPTBigCode", _GPT2),
    r"^mosaicml/mpt-": ("MPT", ("Wqkv", "out_proj", "up_proj", "down_proj", "wte")),
    r"phi-3(\.5)?-(mini|medium)": (
        "Phi-3",
        ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "embed_tokens"),
    ),
    r"flan-t5-|^google-t5/|^google/(mt5|t5)-": (
        "T5",
        ("q", "k", "v", "o", "wi", "wi_0", "wi_1", "wo", "shared", "embed_tokens", _BIAS),
    ),
    r"^facebook/opt-": ("OPT", (*_BART, "embed_positions", "project_in", "project_out")),
    r"gpt-j-": ("GPT-J", ("q_proj", "k_proj", "v_proj", "out_proj", "fc_in", "fc_out", "wte")),
    r"codegen-": ("CodeGen", ("qkv_proj", "out_proj", "fc_in", "fc_out", "wte")),
    r"baichuan2?-\d+b": (
        "Baichuan",
        ("W_pack", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens"),
    ),
    r"internlm2(_5)?-": ("InternLM2", ("wqkv", "wo", "w1", "w2", "w3", "tok_embeddings", "output")),
    r"^qwen/qwen-(1_8|7|14|72)b": ("Qwen of 2023", ("c_attn", "c_proj", "w1", "w2", "wte")),
}
"""By a pattern of the repository name: the family as people call it, and its layers' names."""
HEADS: Final = frozenset({"lm_head", "output_layer", "embed_out", "score", "classifier"})
_UNSURE: Final = re.compile(r"vision|moondream|audio|llava|internvl|omni|video", re.IGNORECASE)


def family_of(repository: str) -> tuple[str, frozenset[str]] | None:
    """The family that a repository's name says beyond doubt, and the names of its layers."""
    if _UNSURE.search(repository):
        return None
    for pattern, (name, layers) in FAMILIES.items():
        if re.search(pattern, repository, re.IGNORECASE):
            return name, frozenset(layers) | HEADS
    return None
