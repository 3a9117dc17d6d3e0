"""Encoder-decoder language models, and their encoders alone: T5, BART and related families.

Read from transformers 5.23.0, `models/t5/modeling_t5.py`, `models/umt5/modeling_umt5.py`, and of
BART's kin `models/<family>/modeling_<family>.py`. Transformers 5 ties the output projection of
every T5.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal

from msgspec import Struct

from tunec.compiler.analyses.architecture.decoder import Dimensions, Names, classic_sizes, dense
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Part, Stack


class T5Sizes(Struct, frozen=True):
    """The sizes of a T5."""

    hidden: int
    heads: int
    head_dim: int
    ffn: int
    gated: bool
    buckets: int
    everywhere: bool
    """Every layer has its own relative positions (UMT5), not the first one alone."""

    def stack(self, part: Part, layers: int, *, decodes: bool) -> Stack:
        """Sum up one half."""
        return Stack(
            part=part,
            layers=layers,
            hidden=self.hidden,
            heads=self.heads,
            kv_heads=self.heads,
            head_dim=self.head_dim,
            ffn=self.ffn,
            gated=self.gated,
            norm="rms",
            norms=3 if decodes else 2,
            causal=decodes,
            cross_attention=self.hidden if decodes else 0,
        )

    def grow(self, half: Tree, layers: int, *, decodes: bool) -> None:
        """Add the encoder or the decoder."""
        block = half.each("block", range(layers))
        attending = block.at("layer.0")
        self._grow_attention(attending.at("SelfAttention"))
        biased = range(layers) if self.everywhere else range(min(layers, 1))
        positions = half.each("block", biased).at("layer.0.SelfAttention")
        positions.embedding("relative_attention_bias", self.buckets, self.heads)
        attending.norm("layer_norm", self.hidden)
        if decodes:
            crossing = block.at("layer.1")
            self._grow_attention(crossing.at("EncDecAttention"))
            crossing.norm("layer_norm", self.hidden)
        self._grow_ff(block.at("layer.2" if decodes else "layer.1"))
        half.norm("final_layer_norm", self.hidden)

    def _grow_attention(self, tree: Tree) -> None:
        width = self.heads * self.head_dim
        for name in ("q", "k", "v"):
            tree.linear(name, width, self.hidden)
        tree.linear("o", self.hidden, width)

    def _grow_ff(self, tree: Tree) -> None:
        for name in ("wi_0", "wi_1") if self.gated else ("wi",):
            tree.linear(f"DenseReluDense.{name}", self.ffn, self.hidden)
        tree.linear("DenseReluDense.wo", self.hidden, self.ffn)
        tree.norm("layer_norm", self.hidden)


def t5(facts: Facts, *, everywhere: bool) -> Architecture:
    """Derive a T5; `architectures` naming an encoder model leaves the decoder out."""
    sizes = T5Sizes(
        hidden=facts.count("d_model"),
        heads=facts.count("num_heads"),
        head_dim=facts.count("d_kv"),
        ffn=facts.count("d_ff"),
        gated=facts.text("feed_forward_proj").startswith("gated"),
        buckets=facts.count("relative_attention_num_buckets"),
        everywhere=everywhere,
    )
    layers, vocab = facts.count("num_layers"), facts.count("vocab_size")
    decoded = facts.count_or("num_decoder_layers", layers)
    is_encoder = any(name.endswith("EncoderModel") for name in facts.texts("architectures"))
    part: Part = "text_encoder" if is_encoder else "text"
    tree = Tree(part)
    tree.embedding("shared", vocab, sizes.hidden)
    sizes.grow(tree.at("encoder"), layers, decodes=False)
    stacks = [sizes.stack(part, layers, decodes=False)]
    if not is_encoder:
        sizes.grow(tree.at("decoder"), decoded, decodes=True)
        stacks.append(sizes.stack(part, decoded, decodes=True))
    return Architecture(
        family=facts.family,
        kind="encoder" if is_encoder else "encoder-decoder",
        modules=tree.modules(),
        stacks=tuple(stacks),
        hidden=sizes.hidden,
        vocab=0 if is_encoder else vocab,
        context=0,
        tied=not is_encoder,
        head="" if is_encoder else "lm_head",
        embedding="shared",
    )


_BART: Final = Names(
    output="out_proj",
    mlp="",
    gate="",
    up="fc1",
    down="fc2",
    norms=("self_attn_layer_norm", "final_layer_norm"),
    final_norm="",
)


class BartForm(Struct, frozen=True):
    """How a family related to BART differs from it."""

    positions: Literal["learned", "fixed", ""] = "learned"
    """Fixed: a table of sinusoids that is never trained; "": no parameter for positions."""
    offset: int = 0
    """Rows of the table beyond the context."""
    embedding_norm: bool = False
    final_norm: bool = False

    def grow(self, half: Tree, facts: Facts, hidden: int) -> None:
        """Add the modules of an encoder or a decoder outside its layers."""
        rows = facts.count("max_position_embeddings") + self.offset
        if self.positions:
            half.embedding("embed_positions", rows, hidden, fixed=self.positions == "fixed")
        if self.embedding_norm:
            half.norm("layernorm_embedding", hidden, bias=True)
        if self.final_norm:
            half.norm("layer_norm", hidden, bias=True)


_BART_FORM: Final = BartForm(offset=2, embedding_norm=True)


def bart(facts: Facts, form: BartForm) -> Architecture:
    """Derive BART, or a related family."""
    hidden, vocab = facts.count("d_model"), facts.count("vocab_size")
    tied = facts.flag("tie_word_embeddings")
    shares = facts.family != "marian" or facts.flag("share_encoder_decoder_embeddings")
    tree = Tree("text")
    if shares:
        tree.embedding("model.shared", vocab, hidden)
    stacks = []
    for side in ("encoder", "decoder"):
        layers = dense(_BART, _bart_sizes(facts, side, hidden))
        half = tree.at(f"model.{side}")
        form.grow(half, facts, hidden)
        layers.grow_layers(half)
        stacks.append(layers.stacks[0])
    _grow_cross(tree.at("model.decoder").each("layers", range(stacks[1].layers)), hidden)
    written = vocab if shares else facts.count_or("decoder_vocab_size", vocab)
    if not (tied and shares):
        # both halves' embeddings are tied to the shared one by the same flag
        tree.embedding("model.encoder.embed_tokens", vocab, hidden)
        tree.embedding("model.decoder.embed_tokens", written, hidden)
    if not tied:
        tree.linear("lm_head", written, hidden)
    crossed = replace(stacks[1], cross_attention=hidden, norms=3, causal=True)
    return Architecture(
        family=facts.family,
        kind="encoder-decoder",
        modules=tree.modules(),
        stacks=(stacks[0], crossed),
        hidden=hidden,
        vocab=written,
        context=facts.count("max_position_embeddings"),
        tied=tied,
        head="lm_head",
        embedding="model.shared" if shares else "model.encoder.embed_tokens",
    )


def _bart_sizes(facts: Facts, side: str, hidden: int) -> Dimensions:
    heads = facts.count(f"{side}_attention_heads")
    layers, ffn = facts.count(f"{side}_layers"), facts.count(f"{side}_ffn_dim")
    return classic_sizes(hidden, layers, heads, ffn, causal=False)


def _grow_cross(layer: Tree, hidden: int) -> None:
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        layer.linear(f"encoder_attn.{name}", hidden, hidden, bias=True)
    layer.norm("encoder_attn_layer_norm", hidden, bias=True)


ENCODER_DECODERS: Final[Mapping[str, Callable[[Facts], Architecture]]] = {
    "t5": partial(t5, everywhere=False),
    "mt5": partial(t5, everywhere=False),
    "umt5": partial(t5, everywhere=True),
    "bart": partial(bart, form=_BART_FORM),
    "plbart": partial(bart, form=_BART_FORM),
    "mbart": partial(bart, form=replace(_BART_FORM, final_norm=True)),
    "m2m_100": partial(bart, form=BartForm("", final_norm=True)),
    "pegasus": partial(bart, form=BartForm("fixed", final_norm=True)),
    "marian": partial(bart, form=BartForm("fixed")),
    "blenderbot": partial(bart, form=BartForm(final_norm=True)),
    "blenderbot-small": partial(bart, form=BartForm(embedding_norm=True)),
}
