"""The GLM family in its own code (`trust_remote_code`): ChatGLM, GLM-4, GLM-4V.

ChatGLM-6B: `modeling_chatglm.py` of THUDM/chatglm-6b. ChatGLM2, ChatGLM3, GLM-4-9B:
`modeling_chatglm.py` of THUDM/glm-4-9b-chat. GLM-4V-9B: the same, and `visual.py`, whose modules
vllm-project/vllm, `vllm/model_executor/models/glm4v.py` (00fb5b4378a4) lists with their names.
"""

from typing import Final

from tunec.compiler.analyses.architecture.assembly import Parts, vision_language
from tunec.compiler.analyses.architecture.decoder import (
    Backbone,
    Dimensions,
    Names,
    causal_lm,
    dense,
)
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.compiler.analyses.architecture.vision import vit_sizes
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, ImageTokens

_GLM: Final = Names(
    root="transformer",
    tokens="embedding.word_embeddings",
    layers="encoder.layers",
    attention="self_attention",
    fused="query_key_value",
    output="dense",
    gate_up="dense_h_to_4h",
    down="dense_4h_to_h",
    final_norm="encoder.final_layernorm",
    head="transformer.output_layer",
)
CHATGLM_6B: Final = Names(
    root="transformer",
    tokens="word_embeddings",
    attention="attention",
    fused="query_key_value",
    output="dense",
    gate="",
    up="dense_h_to_4h",
    down="dense_4h_to_h",
    final_norm="final_layernorm",
)
"""The first generation; SwissArmyTransformer uses the same names."""
_EVA: Final = Names(
    attention="attention",
    fused="query_key_value",
    output="dense",
    gate="",
    up="fc1",
    down="fc2",
    final_norm="",
)


def chatglm(facts: Facts) -> Architecture:
    """Derive a model of `model_type` chatglm; the config's keys tell the generations apart."""
    if facts.has("vision_config"):
        return glm4v(facts)
    if facts.has("padded_vocab_size") or facts.has("ffn_hidden_size"):
        return replace(causal_lm(_glm, facts), remote_code=True)
    return replace(causal_lm(chatglm_6b, facts), remote_code=True)


def chatglm_6b(facts: Facts) -> Backbone:
    """Read ChatGLM-6B: layer norms, two-dimensional positions, head tied to the embedding.

    The tie is `PretrainedConfig`'s default in the transformers that run this code (below 5): logs
    of LoRA on `query_key_value` count 6,173,286,400 parameters below the adapter.
    """
    tied = facts.flag("tie_word_embeddings") if facts.has("tie_word_embeddings") else True
    return dense(CHATGLM_6B, chatglm_6b_sizes(facts, tied=tied))


def chatglm_6b_sizes(facts: Facts, *, tied: bool) -> Dimensions:
    """Read the sizes of a first-generation ChatGLM."""
    hidden, heads = facts.count("hidden_size"), facts.count("num_attention_heads")
    return Dimensions(
        hidden=hidden,
        layers=facts.count("num_layers"),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=facts.count_or("inner_hidden_size", 4 * hidden),
        vocab=facts.count("vocab_size"),
        context=facts.size("max_sequence_length"),
        tied=tied,
        norm="layer",
        norm_bias=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
    )


def _glm(facts: Facts) -> Backbone:
    """Read ChatGLM2, ChatGLM3 or GLM-4: RMS norms, grouped queries, a fused gate."""
    hidden, heads = facts.count("hidden_size"), facts.count("num_attention_heads")
    bias = facts.flag("add_bias_linear")
    grouped = facts.flag("multi_query_attention")
    is_rms = facts.flag("rmsnorm") if facts.has("rmsnorm") else True
    sizes = Dimensions(
        hidden=hidden,
        layers=facts.count("num_layers"),
        heads=heads,
        kv_heads=facts.count("multi_query_group_num") if grouped else heads,
        head_dim=facts.count("kv_channels"),
        ffn=facts.count("ffn_hidden_size"),
        vocab=facts.count("padded_vocab_size"),
        context=facts.size("seq_length"),
        tied=False,
        norm="rms" if is_rms else "layer",
        norm_bias=not is_rms,
        qkv_bias=bias or facts.flag("add_qkv_bias"),
        output_bias=bias,
        mlp_bias=bias,
    )
    return dense(_GLM, sizes)


def glm4v(facts: Facts) -> Architecture:
    """Derive GLM-4V: EVA2-CLIP, a stride-two convolution, a gated projector, two frame tokens."""
    text, vision = _glm(facts), facts.section("vision_config", "glm-4v vision")
    tower = dense(_EVA, vit_sizes(vision, "num_heads"), "vision")
    image_size, patch = vision.side("image_size"), vision.side("patch_size")
    width, hidden, ffn = tower.sizes.hidden, text.sizes.hidden, text.sizes.ffn

    def grow(tree: Tree) -> None:
        seen = tree.at("transformer.vision", "vision")
        embedding = seen.at("patch_embedding")
        embedding.conv("proj", width, vision.count("in_channels"), patch, patch)
        embedding.parameter("cls_embedding", 1, width)
        embedding.embedding("position_embedding", vision.count("num_positions"), width)
        tower.grow_layers(seen.at("transformer"))
        projector = tree.at("transformer.vision", "projector")
        projector.conv("conv", hidden, width, 2, 2)
        gated = projector.at("linear_proj")
        gated.linear("linear_proj", hidden, hidden)
        gated.norm("norm1", hidden, bias=True)
        gated.linear("gate_proj", ffn, hidden)
        gated.linear("dense_h_to_4h", ffn, hidden)
        gated.linear("dense_4h_to_h", hidden, ffn)
        projector.parameter("boi", 1, 1, hidden)
        projector.parameter("eoi", 1, 1, hidden)

    images = ImageTokens(
        rule="fixed",
        image_size=image_size,
        patch=patch,
        merge=2,
        tokens=(image_size // patch // 2) ** 2,
        lead_tokens=1,
        framing_tokens=2,
    )
    parts = Parts(
        backbone=text,
        tower=tower.stacks,
        images=images,
        grow=grow,
        tied=False,
        text_root="transformer",
        remote_code=True,
    )
    return vision_language(facts, parts)
