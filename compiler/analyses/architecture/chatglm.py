"""The GLM family in its own code (`trust_remote_code`): ChatGLM, GLM-4, GLM-4V, VisualGLM.

ChatGLM-6B: `modeling_chatglm.py` of THUDM/chatglm-6b. ChatGLM2, ChatGLM3, GLM-4-9B:
`modeling_chatglm.py` of THUDM/glm-4-9b-chat. GLM-4V-9B: the same, and `visual.py`, whose modules
vllm-project/vllm, `vllm/model_executor/models/glm4v.py` (00fb5b4378a4) lists with their names.

VisualGLM-6B as SwissArmyTransformer builds it, ChatGLM-6B with a BLIP-2 image encoder:
THUDM/VisualGLM-6B (e314fb9), `model/visualglm.py`, `model/blip2.py`, and SwissArmyTransformer
0.4.12, `sat/model/transformer.py`. The config is the checkpoint's `model_config.json`, whose family
is its `model_class`.
"""

from collections.abc import Sequence
from typing import Final

from tunec.compiler.analyses.architecture.assembly import Parts, vision_language
from tunec.compiler.analyses.architecture.decoder import (
    Backbone,
    Dimensions,
    Names,
    causal_lm,
    classic_sizes,
    dense,
    stack,
)
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree, where
from tunec.compiler.analyses.architecture.vision import vit_sizes
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, ImageTokens, Stack

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
    return classic_sizes(
        hidden,
        facts.count("num_layers"),
        heads,
        facts.count_or("inner_hidden_size", 4 * hidden),
        vocab=facts.count("vocab_size"),
        context=facts.size("max_sequence_length"),
        tied=tied,
    )


def _glm(facts: Facts) -> Backbone:
    """Read ChatGLM2, ChatGLM3 or GLM-4: RMS norms, grouped queries, one gate-and-up projection."""
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


_ENCODER: Final = "mixins.eva.model"
_SAT: Final = replace(CHATGLM_6B, head="mixins.chatglm-final.lm_head")


def visualglm(facts: Facts) -> Architecture:
    """Derive VisualGLM-6B; its head is a copy of its own, not tied to the embedding."""
    text = dense(_SAT, chatglm_6b_sizes(facts, tied=False))
    eva, qformer = facts.section("eva_args", "eva"), facts.section("qformer_args", "qformer")
    tower, layers = dense(CHATGLM_6B, _encoder_sizes(eva), "vision"), _qformer(qformer)
    crossed, cross_width = where(_crossed(qformer)), qformer.count("cross_attn_hidden_size")

    def grow(tree: Tree) -> None:
        _grow_vit(tree.at(f"{_ENCODER}.vit", "vision"), eva, tower)
        projector = tree.at(_ENCODER, "projector")
        body = projector.at("qformer.transformer")
        layers.grow(body)
        _grow_cross(body.each("layers", crossed), layers.sizes.hidden, cross_width)
        projector.linear("glm_proj", text.sizes.hidden, layers.sizes.hidden, bias=True)

    images = ImageTokens(
        rule="fixed",
        image_size=eva.side("image_size"),
        patch=eva.side("patch_size"),
        tokens=facts.count("image_length"),
        lead_tokens=1,
    )
    parts = Parts(
        backbone=text,
        tower=tower.stacks,
        projector=_qformer_stacks(layers, len(crossed), cross_width),
        images=images,
        grow=grow,
        tied=False,
        text_root="transformer",
        remote_code=True,
    )
    return vision_language(facts, parts)


def _encoder_sizes(facts: Facts) -> Dimensions:
    return replace(chatglm_6b_sizes(facts, tied=False), causal=False)


def _grow_vit(tree: Tree, eva: Facts, tower: Backbone) -> None:
    """`EVAViT`: the class token is a word embedding, the last norm a mixin."""
    hidden, patch = tower.sizes.hidden, eva.side("patch_size")
    tree.conv("mixins.patch_embedding.proj", hidden, eva.count("in_channels"), patch, patch)
    tree.norm("mixins.cls.ln_vision", hidden, bias=True)
    body = tree.at("transformer")
    body.embedding("word_embeddings", tower.sizes.vocab, hidden)
    body.embedding("position_embeddings", tower.sizes.context, hidden)
    tower.grow_layers(body)


def _qformer(facts: Facts) -> Backbone:
    return dense(CHATGLM_6B, _encoder_sizes(facts), "projector")


def _crossed(facts: Facts) -> Sequence[bool]:
    """Read which layers attend to the image: `is_decoder`, one flag for each layer."""
    flags = facts.get("is_decoder")
    if isinstance(flags, list | tuple):
        return [flag is True for flag in flags]
    facts.refuse("is_decoder", "a list of truth values")
    return ()


def _qformer_stacks(layers: Backbone, crossed: int, width: int) -> tuple[Stack, ...]:
    names, sizes = layers.names, layers.sizes
    plain = stack(names, sizes, part="projector", layers=sizes.layers - crossed)
    cross = stack(names, sizes, part="projector", layers=crossed)
    return tuple(s for s in (plain, replace(cross, cross_attention=width, norms=3)) if s.layers)


def _grow_cross(layer: Tree, hidden: int, width: int) -> None:
    cross = layer.at("cross_attention")
    cross.linear("query", hidden, hidden, bias=True)
    cross.linear("key_value", 2 * hidden, width, bias=True)
    cross.linear("dense", hidden, hidden, bias=True)
    layer.norm("post_cross_attention_layernorm", hidden, bias=True)
