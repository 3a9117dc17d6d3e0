"""VisualGLM-6B as SwissArmyTransformer builds it: ChatGLM-6B with a BLIP-2 image encoder.

Read from THUDM/VisualGLM-6B (e314fb9), `model/visualglm.py`, `model/blip2.py`, and
SwissArmyTransformer 0.4.12, `sat/model/transformer.py`. The config is the checkpoint's
`model_config.json`, whose family is its `model_class`.
"""

from collections.abc import Sequence
from typing import Final

from tunec.compiler.analyses.architecture.assembly import Parts, vision_language
from tunec.compiler.analyses.architecture.chatglm import CHATGLM_6B, chatglm_6b_sizes
from tunec.compiler.analyses.architecture.decoder import Backbone, Dimensions, dense, stack
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree, where
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, ImageTokens, Stack

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
    """Read which layers attend to the image: `is_decoder`, one flag a layer."""
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
