"""Decoders with the keys of GPT-2 and its contemporaries.

Read from transformers 5.23.0, `models/<family>/modeling_<family>.py`.
"""

from collections.abc import Mapping
from typing import Final

from tunec.compiler.analyses.architecture.decoder import (
    Backbone,
    Dimensions,
    Names,
    Read,
    classic_sizes,
    dense,
)
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.schemas.frozen import replace

_GPT2: Final = Names(
    root="transformer",
    tokens="wte",
    positions="wpe",
    layers="h",
    attention="attn",
    fused="c_attn",
    output="c_proj",
    gate="",
    up="c_fc",
    down="c_proj",
    norms=("ln_1", "ln_2"),
    final_norm="ln_f",
)
_GPT_NEO: Final = replace(_GPT2, attention="attn.attention", fused="", output="out_proj")
_GPTJ: Final = replace(
    _GPT2,
    positions="",
    fused="",
    output="out_proj",
    up="fc_in",
    down="fc_out",
    norms=("ln_1",),
)
_CODEGEN: Final = replace(_GPTJ, fused="qkv_proj")
_BLOOM: Final = replace(
    _GPT2,
    tokens="word_embeddings",
    positions="",
    embedding_norm="word_embeddings_layernorm",
    attention="self_attention",
    fused="query_key_value",
    output="dense",
    up="dense_h_to_4h",
    down="dense_4h_to_h",
    norms=("input_layernorm", "post_attention_layernorm"),
)
_FALCON: Final = replace(_BLOOM, embedding_norm="")
_MPT: Final = replace(
    _GPT2,
    positions="",
    layers="blocks",
    fused="Wqkv",
    output="out_proj",
    mlp="ffn",
    up="up_proj",
    down="down_proj",
    norms=("norm_1", "norm_2"),
    final_norm="norm_f",
)
_OPT: Final = Names(
    root="model.decoder",
    positions="embed_positions",
    project_in="project_in",
    project_out="project_out",
    output="out_proj",
    mlp="",
    gate="",
    up="fc1",
    down="fc2",
    norms=("self_attn_layer_norm", "final_layer_norm"),
    final_norm="final_layer_norm",
)


def _old_keys(facts: Facts) -> Dimensions:
    """Read the sizes under GPT-2's keys: layer norms with biases, biases in all linear layers."""
    hidden, heads = facts.count("n_embd"), facts.count("n_head")
    context = facts.count("n_positions")
    return classic_sizes(
        hidden,
        facts.count("n_layer"),
        heads,
        facts.count_or("n_inner", 4 * hidden),
        vocab=facts.count("vocab_size"),
        context=context,
        positions=context,
        tied=facts.flag("tie_word_embeddings"),
    )


def gpt2(facts: Facts) -> Backbone:
    """Read GPT-2."""
    return dense(_GPT2, _old_keys(facts))


def gpt_bigcode(facts: Facts) -> Backbone:
    """Read SantaCoder and StarCoder: one key-value head with `multi_query`."""
    sizes = _old_keys(facts)
    return dense(_GPT2, replace(sizes, kv_heads=1) if facts.flag("multi_query") else sizes)


def gptj(facts: Facts) -> Backbone:
    """Read GPT-J: rotary positions, no biases in attention, one in the output projection."""
    sizes = replace(_old_keys(facts), qkv_bias=False, output_bias=False, head_bias=True)
    return dense(_GPTJ, sizes)


def codegen(facts: Facts) -> Backbone:
    """Read CodeGen: GPT-J with one projection for query, key and value."""
    return dense(_CODEGEN, gptj(facts).sizes)


def gpt_neo(facts: Facts) -> Backbone:
    """Read GPT-Neo: every other layer is local, or those that `attention_types` lists."""
    hidden, layers, heads = (facts.count(key) for key in ("hidden_size", "num_layers", "num_heads"))
    context, local = facts.count("max_position_embeddings"), _local_layers(facts, layers)
    sizes = classic_sizes(
        hidden,
        layers,
        heads,
        facts.count_or("intermediate_size", 4 * hidden),
        vocab=facts.count("vocab_size"),
        context=context,
        positions=context,
        tied=facts.flag("tie_word_embeddings"),
    )
    window = facts.count("window_size") if local else None
    sizes = replace(sizes, qkv_bias=False, window=window, windowed_layers=local)
    return dense(_GPT_NEO, sizes)


def _local_layers(facts: Facts, layers: int) -> int:
    """Count the local layers of `attention_types`: pairs of a list of kinds and its repetitions."""
    types = facts.get("attention_types")
    if types is None:
        return layers // 2
    try:
        local = sum(list(kinds).count("local") * repeat for kinds, repeat in types)
    except (TypeError, ValueError):
        local = None
    if type(local) is int and 0 <= local <= layers:
        return local
    facts.refuse(
        "attention_types", "pairs of a list of kinds and a number, for all layers together"
    )
    return 0


def bloom(facts: Facts) -> Backbone:
    """Read BLOOM; old configs have `n_embed` for `hidden_size`."""
    hidden = facts.count("n_embed" if facts.has("n_embed") else "hidden_size")
    heads = facts.count("n_head")
    sizes = classic_sizes(
        hidden,
        facts.count("n_layer"),
        heads,
        4 * hidden,
        vocab=facts.count("vocab_size"),
        context=facts.size("seq_length"),
        tied=facts.flag("tie_word_embeddings"),
    )
    return dense(_BLOOM, sizes)


def falcon(facts: Facts) -> Backbone:
    """Read Falcon; old configs have `n_embed` for `hidden_size`."""
    hidden = facts.count("n_embed" if facts.has("n_embed") else "hidden_size")
    heads = facts.count("num_attention_heads")
    sizes = classic_sizes(
        hidden,
        facts.count("num_hidden_layers"),
        heads,
        facts.count_or("ffn_hidden_size", 4 * hidden),
        vocab=facts.count("vocab_size"),
        context=facts.size("max_position_embeddings"),
        tied=facts.flag("tie_word_embeddings"),
        bias=facts.flag("bias"),
    )
    sizes = replace(sizes, kv_heads=_falcon_kv_heads(facts, heads))
    return dense(replace(_FALCON, norms=_falcon_norms(facts)), sizes)


def _falcon_kv_heads(facts: Facts, heads: int) -> int:
    """`FalconAttention.__init__`: new decoders group heads, old ones have one head or all."""
    if facts.flag("new_decoder_architecture"):
        return facts.count_or("num_kv_heads", heads)
    return 1 if facts.flag("multi_query") else heads


def _falcon_norms(facts: Facts) -> tuple[str, ...]:
    """`FalconDecoderLayer.__init__`: parallel attention has one norm, or two with other names."""
    if not facts.flag("parallel_attn"):
        return ("post_attention_layernorm", "input_layernorm")
    default = 2 if facts.flag("new_decoder_architecture") else 1
    two = facts.count_or("num_ln_in_parallel_attn", default) == 2
    return ("ln_attn", "ln_mlp") if two else ("input_layernorm",)


def mpt(facts: Facts) -> Backbone:
    """Read MPT: no biases anywhere, ALiBi; the inner width is four times the hidden one."""
    hidden, heads = facts.count("d_model"), facts.count("n_heads")
    sizes = classic_sizes(
        hidden,
        facts.count("n_layers"),
        heads,
        4 * hidden,
        vocab=facts.count("vocab_size"),
        context=facts.size("max_seq_len"),
        tied=facts.flag("tie_word_embeddings"),
        bias=False,
    )
    return dense(_MPT, replace(sizes, norm_bias=False))


def opt(facts: Facts) -> Backbone:
    """Read OPT: two more learned positions than the context; 350m has a narrower embedding."""
    hidden, heads = facts.count("hidden_size"), facts.count("num_attention_heads")
    embedding = facts.count_or("word_embed_proj_dim", hidden)
    context = facts.count("max_position_embeddings")
    sizes = classic_sizes(
        hidden,
        facts.count("num_hidden_layers"),
        heads,
        facts.count("ffn_dim"),
        vocab=facts.count("vocab_size"),
        context=context,
        positions=context + 2,
        tied=facts.flag("tie_word_embeddings"),
        bias=facts.flag("enable_bias"),
    )
    sizes = replace(
        sizes,
        embedding=0 if embedding == hidden else embedding,
        norm_weight=facts.flag("layer_norm_elementwise_affine"),
    )
    before = facts.flag("do_layer_norm_before") and not facts.flag("_remove_final_layer_norm")
    return dense(_OPT if before else replace(_OPT, final_norm=""), sizes)


GPT_DECODERS: Final[Mapping[str, Read]] = {
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gptj": gptj,
    "codegen": codegen,
    "gpt_neo": gpt_neo,
    "bloom": bloom,
    "falcon": falcon,
    "mpt": mpt,
    "opt": opt,
}
