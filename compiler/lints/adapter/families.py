"""Layer names of families by what their repositories are called.

For models that are not in the catalogue: what nobody takes for another family's model is told by
its repository's name, and the names of its layers are those of the class in transformers 5.23.0,
models/*/modeling_*.py (Linear, Conv1D and Embedding modules; listed from the classes themselves),
for Baichuan, InternLM2 and Qwen of 2023 those of modeling_*.py in their repositories. Heads are
left out, as every family has one.
"""

import re
from collections.abc import Mapping
from typing import Final

_FUSED: Final = ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")
_GPT2: Final = ("c_attn", "c_proj", "c_fc", "wte", "wpe")

FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    r"bloomz?[-_]": ("BLOOM", (*_FUSED, "word_embeddings")),
    r"falcon-?(rw-|7b|40b|180b)": ("Falcon", (*_FUSED, "word_embeddings")),
    r"pythia-|gpt-neox": ("GPT-NeoX", (*_FUSED, "embed_in", "embed_out", "lm_head")),
    r"chatglm\d?-": ("ChatGLM", (*_FUSED, "word_embeddings", "output_layer")),
    r"^(openai-community/|)(distil)?gpt2(-medium|-large|-xl|)$": ("GPT-2", _GPT2),
    r"starcoder(base|plus|)(-\d+b|)$|santacoder": ("GPTBigCode", _GPT2),
    r"^mosaicml/mpt-": ("MPT", ("Wqkv", "out_proj", "up_proj", "down_proj", "wte")),
    r"phi-3(\.5)?-(mini|small|medium)": (
        "Phi-3",
        ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "embed_tokens"),
    ),
    r"flan-t5-|^google-t5/|^google/(mt5|t5)-": (
        "T5",
        ("q", "k", "v", "o", "wi", "wi_0", "wi_1", "wo", "shared", "embed_tokens"),
    ),
    r"^facebook/opt-": (
        "OPT",
        ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "embed_tokens"),
    ),
    r"gpt-j-": ("GPT-J", ("q_proj", "k_proj", "v_proj", "out_proj", "fc_in", "fc_out", "wte")),
    r"codegen-": ("CodeGen", ("qkv_proj", "out_proj", "fc_in", "fc_out", "wte")),
    r"baichuan2?-\d+b": (
        "Baichuan",
        ("W_pack", "o_proj", "gate_proj", "up_proj", "down_proj", "embed_tokens"),
    ),
    r"internlm2(_5)?-": (
        "InternLM2",
        ("wqkv", "wo", "w1", "w2", "w3", "tok_embeddings", "output"),
    ),
    r"^qwen/qwen-(1_8|7|14|72)b": ("Qwen of 2023", ("c_attn", "c_proj", "w1", "w2", "wte")),
}
"""By a pattern of the repository name: the family as people call it, and its layers' names."""
HEADS: Final = frozenset({"lm_head", "output_layer", "embed_out", "score", "classifier"})
_UNSURE: Final = re.compile(r"vision|moondream|audio|llava|internvl", re.IGNORECASE)


def family_of(repository: str) -> tuple[str, frozenset[str]] | None:
    """The family that a repository's name says beyond doubt, and the names of its layers."""
    if _UNSURE.search(repository):
        return None
    for pattern, (name, layers) in FAMILIES.items():
        if re.search(pattern, repository, re.IGNORECASE):
            return name, frozenset(layers) | HEADS
    return None
