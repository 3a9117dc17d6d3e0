"""A builder for transformer layers from a family's module names and sizes."""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.schemas.models.architecture import Architecture, Experts, Part, Stack


class Names(Struct, frozen=True, kw_only=True):
    """The names of a family's modules; the defaults are Llama's. Empty: there is no such module."""

    root: str = "model"
    tokens: str = "embed_tokens"
    positions: str = ""
    """The module of learned position embeddings."""
    embedding_norm: str = ""
    project_in: str = ""
    project_out: str = ""
    """Projections between the width of the embedding and the hidden width, if they differ."""
    layers: str = "layers"
    attention: str = "self_attn"
    query: str = "q_proj"
    key: str = "k_proj"
    value: str = "v_proj"
    fused: str = ""
    """One projection for query, key and value instead of three."""
    output: str = "o_proj"
    query_norm: str = "q_norm"
    key_norm: str = "k_norm"
    mlp: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    gate_up: str = ""
    """One projection for gate and up instead of two."""
    down: str = "down_proj"
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    final_norm: str = "norm"
    head: str = "lm_head"
    """Dotted name from the model itself, not from `root`."""


class Dimensions(Struct, frozen=True, kw_only=True):
    """The sizes of a decoder or an encoder."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int = 0
    context: int = 0
    tied: bool = False
    embedding: int = 0
    """Width of the token embedding; 0: the hidden width."""
    embedding_rows: int = 0
    """Rows of the token embedding; 0: as many as the output projection has."""
    positions: int = 0
    """Rows of the learned position embeddings."""
    fused: int = 0
    """Outputs of the fused query-key-value projection; 0: all heads together."""
    norm: Literal["rms", "layer"] = "rms"
    norm_bias: bool = False
    norm_weight: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    query_norm: tuple[int, ...] = ()
    """Shape of the norm on queries; empty: none."""
    key_norm: tuple[int, ...] = ()
    qk_norm_bias: bool = False
    window: int | None = None
    windowed_layers: int = 0
    softcap: bool = False
    logit_softcap: bool = False
    causal: bool = True


def classic_sizes(
    hidden: int,
    layers: int,
    heads: int,
    ffn: int,
    *,
    vocab: int = 0,
    context: int = 0,
    positions: int = 0,
    tied: bool = False,
    bias: bool = True,
    causal: bool = True,
) -> Dimensions:
    """The sizes of a classic transformer: layer norms, and each head with its own key and value.

    `bias`: whether all linear layers have one, as the norms do.
    """
    return Dimensions(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=ffn,
        vocab=vocab,
        context=context,
        positions=positions,
        tied=tied,
        norm="layer",
        norm_bias=True,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        causal=causal,
    )


Grow = Callable[[Tree, Names, Dimensions], None]


class Backbone(Struct, frozen=True):
    """Layers with their embedding, without an output projection, to be grown anywhere in a tree."""

    names: Names
    sizes: Dimensions
    stacks: tuple[Stack, ...]
    attention: Grow
    feed_forward: Grow

    def grow(self, root: Tree) -> None:
        """Add every module under `root`, such as `model` or `model.language_model`."""
        names, sizes = self.names, self.sizes
        rows = sizes.embedding_rows or sizes.vocab
        root.embedding(names.tokens, rows, sizes.embedding or sizes.hidden)
        if names.positions and sizes.positions:
            root.embedding(names.positions, sizes.positions, sizes.hidden)
        if names.project_in and sizes.embedding:
            root.linear(names.project_in, sizes.hidden, sizes.embedding)
            root.linear(names.project_out, sizes.embedding, sizes.hidden)
        if names.embedding_norm:
            _norm(root, names.embedding_norm, sizes)
        self.grow_layers(root)
        if names.final_norm:
            _norm(root, names.final_norm, sizes)

    def grow_layers(self, root: Tree) -> None:
        """Add the layers alone."""
        names, sizes = self.names, self.sizes
        self.attention(root, names, sizes)
        self.feed_forward(root, names, sizes)
        layer = root.each(names.layers, range(sizes.layers))
        for name in names.norms:
            _norm(layer, name, sizes)

    def grow_head(self, tree: Tree, *, tied: bool) -> None:
        """Add the output projection, unless it shares the embedding's weight."""
        sizes = self.sizes
        if not tied:
            width = sizes.embedding or sizes.hidden
            tree.linear(self.names.head, sizes.vocab, width, bias=sizes.head_bias)
        elif sizes.head_bias:
            tree.parameter(f"{self.names.head}.bias", sizes.vocab)


def separate_attention(root: Tree, names: Names, sizes: Dimensions) -> None:
    """Add attention with a projection each for queries, keys and values."""
    attention = root.each(names.layers, range(sizes.layers)).at(names.attention)
    width = sizes.heads * sizes.head_dim
    kv_width = sizes.kv_heads * sizes.head_dim
    attention.linear(names.query, width, sizes.hidden, bias=sizes.qkv_bias)
    attention.linear(names.key, kv_width, sizes.hidden, bias=sizes.qkv_bias)
    attention.linear(names.value, kv_width, sizes.hidden, bias=sizes.qkv_bias)
    if names.output:
        attention.linear(names.output, sizes.hidden, width, bias=sizes.output_bias)
    if sizes.query_norm:
        attention.norm(names.query_norm, *sizes.query_norm, bias=sizes.qk_norm_bias)
        attention.norm(names.key_norm, *sizes.key_norm, bias=sizes.qk_norm_bias)


def fused_attention(root: Tree, names: Names, sizes: Dimensions) -> None:
    """Add attention with one projection for queries, keys and values."""
    attention = root.each(names.layers, range(sizes.layers)).at(names.attention)
    width = sizes.heads * sizes.head_dim
    outputs = sizes.fused or width + 2 * sizes.kv_heads * sizes.head_dim
    attention.linear(names.fused, outputs, sizes.hidden, bias=sizes.qkv_bias)
    attention.linear(names.output, sizes.hidden, width, bias=sizes.output_bias)


def dense_mlp(root: Tree, names: Names, sizes: Dimensions) -> None:
    """Add a dense feed-forward to every layer."""
    layer = root.each(names.layers, range(sizes.layers))
    mlp(layer.at(names.mlp), names, sizes.hidden, sizes.ffn, bias=sizes.mlp_bias)


def mlp(tree: Tree, names: Names, hidden: int, ffn: int, *, bias: bool = False) -> None:
    """Add one feed-forward of inner width `ffn`."""
    if names.gate_up:
        tree.linear(names.gate_up, 2 * ffn, hidden, bias=bias)
    else:
        if names.gate:
            tree.linear(names.gate, ffn, hidden, bias=bias)
        tree.linear(names.up, ffn, hidden, bias=bias)
    tree.linear(names.down, hidden, ffn, bias=bias)


def stack(
    names: Names,
    sizes: Dimensions,
    *,
    part: Part = "text",
    layers: int | None = None,
    ffn: int | None = None,
    experts: Experts | None = None,
) -> Stack:
    """Sum the layers up for the memory and time accounts."""
    return Stack(
        part=part,
        layers=sizes.layers if layers is None else layers,
        hidden=sizes.hidden,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        ffn=sizes.ffn if ffn is None else ffn,
        gated=bool(names.gate or names.gate_up),
        norm=sizes.norm,
        norms=len(names.norms),
        qk_norm=bool(sizes.query_norm),
        causal=sizes.causal,
        window=sizes.window,
        windowed_layers=sizes.windowed_layers,
        softcap=sizes.softcap,
        experts=experts,
    )


def dense(names: Names, sizes: Dimensions, part: Part = "text") -> Backbone:
    """Put equal dense layers together."""
    attention = fused_attention if names.fused else separate_attention
    return Backbone(names, sizes, (stack(names, sizes, part=part),), attention, dense_mlp)


Read = Callable[[Facts], Backbone]


def causal_lm(read: Read, facts: Facts) -> Architecture:
    """Derive a language model: the backbone and its output projection."""
    backbone = read(facts)
    names, sizes = backbone.names, backbone.sizes
    tree = Tree("text")
    backbone.grow(tree.at(names.root))
    backbone.grow_head(tree, tied=sizes.tied)
    return Architecture(
        family=facts.family,
        kind="causal-lm",
        modules=tree.modules(),
        stacks=backbone.stacks,
        hidden=sizes.hidden,
        vocab=sizes.vocab,
        context=sizes.context,
        tied=sizes.tied,
        logit_softcap=sizes.logit_softcap,
        head=names.head,
        embedding=f"{names.root}.{names.tokens}",
    )


def sliding(layer_types: Sequence[str]) -> int:
    """Count the sliding-window layers of a config's `layer_types`."""
    return sum(kind == "sliding_attention" for kind in layer_types)


def _norm(tree: Tree, name: str, sizes: Dimensions) -> None:
    if sizes.norm_weight:
        tree.norm(name, sizes.hidden, bias=sizes.norm_bias)
