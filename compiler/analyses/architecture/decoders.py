"""Dense decoders whose configs use Llama's keys: one row for each family.

Read from transformers 5.23.0, `models/<family>/modeling_<family>.py`; InternLM2, which runs in its
own code, from OpenGVLab/InternVL (2410d1dbf208), `internvl_chat/internvl/model/internlm2/`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal

from msgspec import Struct

from tunec.compiler.analyses.architecture.decoder import (
    Backbone,
    Dimensions,
    Names,
    Read,
    dense,
    dense_mlp,
    separate_attention,
    sliding,
    stack,
)
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree

Bias = bool | str
"""Fixed by the code, or the config key that decides it."""

Windows = Callable[[Facts, int], tuple[int | None, int]]
"""From a config and its number of layers: the window, and how many layers have it."""


def no_window(_: Facts, __: int) -> tuple[int | None, int]:
    """Every layer attends to all earlier tokens."""
    return None, 0


def every_layer(facts: Facts, layers: int) -> tuple[int | None, int]:
    """Mistral: `sliding_window`, if set, holds for all layers."""
    window = facts.size("sliding_window") or None
    return window, layers if window else 0


def upper_layers(facts: Facts, layers: int) -> tuple[int | None, int]:
    """Qwen: windows only with `use_sliding_window`, from layer `max_window_layers` on."""
    if not facts.flag("use_sliding_window"):
        return None, 0
    return typed_windows(facts, layers - min(facts.size("max_window_layers"), layers))


def all_but_each(period: int, key: str = "") -> Windows:
    """Gemma and others: all but every `period`-th layer have a window; `key` overrides it."""

    def windows(facts: Facts, layers: int) -> tuple[int | None, int]:
        step = facts.count_or(key, period) if key else period
        return typed_windows(facts, layers - layers // step)

    return windows


def unroped_layers(facts: Facts, layers: int) -> tuple[int | None, int]:
    """SmolLM3: with `use_sliding_window`, the layers without rotary positions have the window."""
    if not facts.flag("use_sliding_window"):
        return None, 0
    roped = facts.sizes("no_rope_layers")
    unroped = roped.count(0) if roped else layers // facts.count("no_rope_layer_interval")
    return typed_windows(facts, unroped)


def typed_windows(facts: Facts, otherwise: int) -> tuple[int | None, int]:
    """Count the windowed layers: by `layer_types` if the config has it, else `otherwise`."""
    window = facts.size("sliding_window") or None
    types = facts.texts("layer_types")
    count = sliding(types) if types else otherwise
    return (window, count) if window and count else (None, 0)


class Dialect(Struct, frozen=True, kw_only=True):
    """How a family differs from Llama."""

    names: Names = Names()
    norm: Literal["rms", "layer"] = "rms"
    norm_bias: bool = False
    norm_weight: bool = True
    qkv_bias: Bias = "attention_bias"
    output_bias: Bias = "attention_bias"
    mlp_bias: Bias = False
    head_bias: bool = False
    qk_norm: Literal["", "head", "width", "each-head"] = ""
    """Norms on queries and keys: one head's width, all heads' width, or a row for each head."""
    qk_norm_if: str = ""
    """The config key that turns those norms on; empty: always."""
    qk_norm_bias: bool = False
    windows: Windows = no_window


def dimensions(facts: Facts, dialect: Dialect, *, ffn: str = "intermediate_size") -> Dimensions:
    """Read the sizes of a decoder whose config uses Llama's keys."""
    hidden, layers = facts.count("hidden_size"), facts.count("num_hidden_layers")
    heads = facts.count("num_attention_heads")
    kv_heads = facts.count_or("num_key_value_heads", heads)
    head_dim = facts.count_or("head_dim", hidden // heads)
    window, windowed = dialect.windows(facts, layers)
    query_norm, key_norm = _qk_norm(facts, dialect, heads, kv_heads, head_dim)
    return Dimensions(
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=facts.count(ffn),
        vocab=facts.count("vocab_size"),
        context=facts.size("max_position_embeddings"),
        tied=facts.flag("tie_word_embeddings"),
        norm=dialect.norm,
        norm_bias=dialect.norm_bias,
        norm_weight=dialect.norm_weight,
        qkv_bias=_says(facts, dialect.qkv_bias),
        output_bias=_says(facts, dialect.output_bias),
        mlp_bias=_says(facts, dialect.mlp_bias),
        head_bias=dialect.head_bias,
        query_norm=query_norm,
        key_norm=key_norm,
        qk_norm_bias=dialect.qk_norm_bias,
        window=window,
        windowed_layers=windowed,
        softcap=facts.number("attn_logit_softcapping") > 0,
        logit_softcap=facts.number("final_logit_softcapping") > 0,
    )


def llama_like(dialect: Dialect, facts: Facts) -> Backbone:
    """Read a dense decoder in the given dialect."""
    return dense(dialect.names, dimensions(facts, dialect))


def stablelm(dialect: Dialect, facts: Facts) -> Backbone:
    """Read StableLM: a parallel residual has one norm; each head has its own query and key norm."""
    names = dialect.names
    if facts.flag("use_parallel_residual"):
        names = Names(norms=("input_layernorm",))
    sizes = dimensions(facts, dialect)
    attention = stablelm_attention if facts.flag("qk_layernorm") else separate_attention
    return Backbone(names, sizes, (stack(names, sizes),), attention, dense_mlp)


def stablelm_attention(root: Tree, names: Names, sizes: Dimensions) -> None:
    """Add StableLM's attention with `StableLmLayerNormPerHead`: a norm module for every head."""
    separate_attention(root, names, sizes)
    attention = root.each(names.layers, range(sizes.layers)).at(names.attention)
    for name, heads in (("q_layernorm", sizes.heads), ("k_layernorm", sizes.kv_heads)):
        attention.at(name).each("norms", range(heads)).norm("", sizes.head_dim)


def _says(facts: Facts, rule: Bias) -> bool:
    return facts.flag(rule) if isinstance(rule, str) else rule


def _qk_norm(
    facts: Facts, dialect: Dialect, heads: int, kv_heads: int, head_dim: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    off = dialect.qk_norm_if and not facts.flag(dialect.qk_norm_if)
    if off or not dialect.qk_norm:
        return (), ()
    if dialect.qk_norm == "head":
        return (head_dim,), (head_dim,)
    if dialect.qk_norm == "width":
        return (heads * head_dim,), (kv_heads * head_dim,)
    return (heads, head_dim), (kv_heads, head_dim)


_GEMMA_NORMS: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
_AFTER: Final = ("post_attention_layernorm", "post_feedforward_layernorm")
_PHI: Final = Names(
    output="dense",
    query_norm="q_layernorm",
    key_norm="k_layernorm",
    gate="",
    up="fc1",
    down="fc2",
    norms=("input_layernorm",),
    final_norm="final_layernorm",
)
_NEOX: Final = Names(
    root="gpt_neox",
    tokens="embed_in",
    attention="attention",
    fused="query_key_value",
    output="dense",
    gate="",
    up="dense_h_to_4h",
    down="dense_4h_to_h",
    final_norm="final_layer_norm",
)
_GLM4_NORMS: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "post_self_attn_layernorm",
    "post_mlp_layernorm",
)

_INTERNLM2: Final = Names(
    tokens="tok_embeddings",
    attention="attention",
    fused="wqkv",
    output="wo",
    mlp="feed_forward",
    gate="w1",
    up="w3",
    down="w2",
    norms=("attention_norm", "ffn_norm"),
    head="output",
)

DIALECTS: Final[Mapping[str, Dialect]] = {
    "llama": Dialect(mlp_bias="mlp_bias"),
    "mistral": Dialect(qkv_bias=False, output_bias=False, windows=every_layer),
    "qwen2": Dialect(qkv_bias=True, output_bias=False, windows=upper_layers),
    "qwen3": Dialect(qk_norm="head", windows=upper_layers),
    "gemma": Dialect(),
    "gemma2": Dialect(names=Names(norms=_GEMMA_NORMS), windows=all_but_each(2)),
    "gemma3_text": Dialect(
        names=Names(norms=_GEMMA_NORMS),
        qk_norm="head",
        windows=all_but_each(6, "sliding_window_pattern"),
    ),
    "phi": Dialect(
        names=_PHI,
        norm="layer",
        norm_bias=True,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        head_bias=True,
        qk_norm="head",
        qk_norm_if="qk_layernorm",
        qk_norm_bias=True,
    ),
    "phi3": Dialect(
        names=Names(fused="qkv_proj", gate_up="gate_up_proj"),
        qkv_bias=False,
        output_bias=False,
        windows=every_layer,
    ),
    "starcoder2": Dialect(
        names=Names(gate="", up="c_fc", down="c_proj"),
        norm="layer",
        norm_bias=True,
        qkv_bias="use_bias",
        output_bias="use_bias",
        mlp_bias="use_bias",
        windows=every_layer,
    ),
    "gpt_neox": Dialect(names=_NEOX, norm="layer", norm_bias=True, mlp_bias=True),
    "cohere": Dialect(
        names=Names(norms=("input_layernorm",)),
        norm="layer",
        qk_norm="each-head",
        qk_norm_if="use_qk_norm",
    ),
    "cohere2": Dialect(
        names=Names(norms=("input_layernorm",)),
        norm="layer",
        windows=all_but_each(4, "sliding_window_pattern"),
    ),
    "olmo": Dialect(norm="layer", norm_weight=False),
    "olmo2": Dialect(names=Names(norms=_AFTER), qk_norm="width"),
    "olmo3": Dialect(names=Names(norms=_AFTER), qk_norm="width", windows=all_but_each(4)),
    "granite": Dialect(mlp_bias="mlp_bias"),
    "smollm3": Dialect(mlp_bias="mlp_bias", windows=unroped_layers),
    "internlm2": Dialect(names=_INTERNLM2, qkv_bias="bias", output_bias="bias"),
    "glm": Dialect(names=Names(gate_up="gate_up_proj"), output_bias=False),
    "glm4": Dialect(names=Names(gate_up="gate_up_proj", norms=_GLM4_NORMS), output_bias=False),
}

_STABLELM: Final = Dialect(norm="layer", norm_bias=True, qkv_bias="use_qkv_bias", output_bias=False)

DECODERS: Final[Mapping[str, Read]] = {
    **{family: partial(llama_like, dialect) for family, dialect in DIALECTS.items()},
    "stablelm": partial(stablelm, _STABLELM),
}
