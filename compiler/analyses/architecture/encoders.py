"""Encoders: BERT and related families, the text models of CLIP.

Read from transformers 5.23.0, `models/bert/modeling_bert.py`, `models/roberta/modeling_roberta.py`,
`models/clip/modeling_clip.py`. `architectures` names the head.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tunec.compiler.analyses.architecture.decoder import Backbone, Names, dense
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.compiler.analyses.architecture.vision import VIT, vit_sizes
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture

_BERT: Final = Names(
    layers="layer",
    attention="attention.self",
    query="query",
    key="key",
    value="value",
    output="",
    mlp="",
    gate="",
    up="intermediate.dense",
    down="output.dense",
    norms=("attention.output.LayerNorm", "output.LayerNorm"),
    final_norm="",
)


def bert(
    prefix: str, head: str, norm: str, facts: Facts, *, is_after_padding: bool = False
) -> Architecture:
    """Derive BERT or RoBERTa, with a masked-language head or else with a pooler.

    `prefix` is the path of the encoder beside a head, `norm` the head's norm. If positions begin
    after that of padding, the table's first rows are not used by any token.
    """
    sizes = vit_sizes(facts)
    layers = dense(_BERT, sizes)
    hidden, vocab = sizes.hidden, facts.count("vocab_size")
    tied, places = facts.flag("tie_word_embeddings"), facts.count("max_position_embeddings")
    is_masked = any(name.endswith("ForMaskedLM") for name in facts.texts("architectures"))
    tree = Tree("text")
    body = tree.at(prefix if is_masked else "")
    embeddings = body.at("embeddings")
    embeddings.embedding("word_embeddings", vocab, hidden)
    embeddings.embedding("position_embeddings", places, hidden)
    embeddings.embedding("token_type_embeddings", facts.count("type_vocab_size"), hidden)
    embeddings.norm("LayerNorm", hidden, bias=True)
    _grow_bert_layers(body.at("encoder"), layers)
    if not is_masked:
        body.linear("pooler.dense", hidden, hidden, bias=True)
    else:
        _grow_masked_head(tree.at(head), norm, hidden, vocab, tied=tied)
    return Architecture(
        family=facts.family,
        kind="encoder",
        modules=tree.modules(),
        stacks=layers.stacks,
        hidden=hidden,
        vocab=vocab if is_masked else 0,
        context=max(places - _padding(facts) - 1, 1) if is_after_padding else places,
        tied=tied and is_masked,
        head=f"{head}.decoder" if is_masked else "",
        embedding=f"{body.path}.embeddings.word_embeddings".lstrip("."),
    )


def _padding(facts: Facts) -> int:
    """The id of the padding token: 1 in RoBERTa's classes, if nothing is set."""
    return facts.size("pad_token_id") if facts.has("pad_token_id") else 1


def _grow_bert_layers(encoder: Tree, layers: Backbone) -> None:
    hidden = layers.sizes.hidden
    layers.grow_layers(encoder)
    layer = encoder.each("layer", range(layers.sizes.layers))
    layer.linear("attention.output.dense", hidden, hidden, bias=True)


def _grow_masked_head(head: Tree, norm: str, hidden: int, vocab: int, *, tied: bool) -> None:
    inner = norm.rpartition(".")[0]
    head.parameter("bias", vocab)
    head.at(inner).linear("dense", hidden, hidden, bias=True)
    head.norm(norm, hidden, bias=True)
    if not tied:
        head.linear("decoder", vocab, hidden, bias=True)


def clip_text(facts: Facts) -> Architecture:
    """Derive a CLIP text model, with its projection if `architectures` names it."""
    layers = dense(VIT, replace(vit_sizes(facts), causal=True), "text_encoder")
    hidden, context = layers.sizes.hidden, facts.count("max_position_embeddings")
    projects = "CLIPTextModelWithProjection" in facts.texts("architectures")
    tree = Tree("text_encoder")
    body = tree.at("text_model" if projects else "")
    body.embedding("embeddings.token_embedding", facts.count("vocab_size"), hidden)
    body.embedding("embeddings.position_embedding", context, hidden)
    layers.grow_layers(body.at("encoder"))
    body.norm("final_layer_norm", hidden, bias=True)
    if projects:
        tree.linear("text_projection", facts.count("projection_dim"), hidden)
    return Architecture(
        family=facts.family,
        kind="encoder",
        modules=tree.modules(),
        stacks=layers.stacks,
        hidden=hidden,
        vocab=0,
        context=context,
        tied=False,
        embedding=f"{body.path}.embeddings.token_embedding".lstrip("."),
    )


# transformers 5.23.0 `RobertaEmbeddings.create_position_ids_from_input_ids`: the first token has
# the position `padding_idx + 1`
_ROBERTA: Final = partial(bert, "roberta", "lm_head", "layer_norm", is_after_padding=True)
ENCODERS: Final[Mapping[str, Callable[[Facts], Architecture]]] = {
    "bert": partial(bert, "bert", "cls.predictions", "transform.LayerNorm"),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "clip_text_model": clip_text,
}
