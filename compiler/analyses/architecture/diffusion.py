"""Diffusion transformers: Stable Diffusion 3 and FLUX.1.

Read from diffusers 0.42.1, `models/transformers/transformer_sd3.py`, `transformer_flux.py` and
`models/attention.py`.
"""

from typing import Final

from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.schemas.models.architecture import Architecture, Stack

_TIME_CHANNELS: Final = 256
"""Sines and cosines of a timestep (`CombinedTimestepTextProjEmbeddings`)."""


def sd3(facts: Facts) -> Architecture:
    """Derive an SD3Transformer2DModel; the last block does not update the text stream."""
    heads, head_dim = facts.count("num_attention_heads"), facts.count("attention_head_dim")
    hidden, layers = heads * head_dim, facts.count("num_layers")
    patch, latents = facts.count("patch_size"), facts.count("in_channels")
    qk_norm = facts.choice("qk_norm", "rms_norm") if facts.has("qk_norm") else ""
    dual = tuple(layer for layer in facts.sizes("dual_attention_layers") if layer < layers)
    tree = Tree("denoiser")
    tree.conv("pos_embed.proj", hidden, latents, patch, patch)
    _grow_time_text(tree.at("time_text_embed"), hidden, facts.count("pooled_projection_dim"))
    width = facts.count("caption_projection_dim")
    tree.linear("context_embedder", width, facts.count("joint_attention_dim"), bias=True)
    _grow_sd3_blocks(tree, hidden, layers, dual, head_dim if qk_norm else 0)
    tree.linear("norm_out.linear", 2 * hidden, hidden, bias=True)
    outputs = facts.count_or("out_channels", latents)
    tree.linear("proj_out", patch * patch * outputs, hidden, bias=True)
    return Architecture(
        family=facts.family,
        kind="diffusion",
        modules=tree.modules(),
        stacks=(_stack(hidden, layers, heads, head_dim, qk_norm=bool(qk_norm), single=False),),
        hidden=hidden,
        vocab=0,
        context=0,
        tied=False,
        latent_channels=latents,
        latent_patch=patch,
    )


def _grow_sd3_blocks(
    tree: Tree, hidden: int, layers: int, dual: tuple[int, ...], normed: int
) -> None:
    """Add the `JointTransformerBlock`s; `dual` ones attend to the image a second time."""
    block, last = tree.each("transformer_blocks", range(layers)), layers - 1
    joint, final = (tree.each("transformer_blocks", indices) for indices in (range(last), (last,)))
    plain = [layer for layer in range(layers) if layer not in dual]
    tree.each("transformer_blocks", plain).linear("norm1.linear", 6 * hidden, hidden, bias=True)
    seconds = tree.each("transformer_blocks", dual)
    seconds.linear("norm1.linear", 9 * hidden, hidden, bias=True)
    joint.linear("norm1_context.linear", 6 * hidden, hidden, bias=True)
    final.linear("norm1_context.linear", 2 * hidden, hidden, bias=True)
    _grow_own(block.at("attn"), hidden, normed)
    block.linear("attn.to_out.0", hidden, hidden, bias=True)
    _grow_added(block.at("attn"), hidden, normed)
    joint.linear("attn.to_add_out", hidden, hidden, bias=True)
    _grow_own(seconds.at("attn2"), hidden, normed)
    seconds.linear("attn2.to_out.0", hidden, hidden, bias=True)
    _grow_ff(block.at("ff"), hidden)
    _grow_ff(joint.at("ff_context"), hidden)


def flux(facts: Facts) -> Architecture:
    """Derive a FluxTransformer2DModel: double blocks, then single ones that fuse both streams.

    The pipeline packs two by two latent elements into each of the `in_channels`.
    """
    heads, head_dim = facts.count("num_attention_heads"), facts.count("attention_head_dim")
    hidden, packed = heads * head_dim, facts.count("in_channels")
    double, single = facts.count("num_layers"), facts.count("num_single_layers")
    tree = Tree("denoiser")
    conditions = tree.at("time_text_embed")
    _grow_time_text(conditions, hidden, facts.count("pooled_projection_dim"))
    if facts.flag("guidance_embeds"):
        _grow_mlp(conditions.at("guidance_embedder"), hidden, _TIME_CHANNELS)
    tree.linear("context_embedder", hidden, facts.count("joint_attention_dim"), bias=True)
    tree.linear("x_embedder", hidden, packed, bias=True)
    _grow_flux_double(tree.each("transformer_blocks", range(double)), hidden, head_dim)
    _grow_flux_single(tree.each("single_transformer_blocks", range(single)), hidden, head_dim)
    tree.linear("norm_out.linear", 2 * hidden, hidden, bias=True)
    patch, outputs = facts.count("patch_size"), facts.count_or("out_channels", packed)
    tree.linear("proj_out", patch * patch * outputs, hidden, bias=True)
    return Architecture(
        family=facts.family,
        kind="diffusion",
        modules=tree.modules(),
        stacks=(
            _stack(hidden, double, heads, head_dim, qk_norm=True, single=False),
            _stack(hidden, single, heads, head_dim, qk_norm=True, single=True),
        ),
        hidden=hidden,
        vocab=0,
        context=0,
        tied=False,
        latent_channels=packed // 4,
        latent_patch=2 * patch,
    )


def _grow_flux_double(block: Tree, hidden: int, head_dim: int) -> None:
    for name in ("norm1", "norm1_context"):
        block.linear(f"{name}.linear", 6 * hidden, hidden, bias=True)
    attention = block.at("attn")
    _grow_own(attention, hidden, head_dim)
    attention.linear("to_out.0", hidden, hidden, bias=True)
    _grow_added(attention, hidden, head_dim)
    attention.linear("to_add_out", hidden, hidden, bias=True)
    _grow_ff(block.at("ff"), hidden)
    _grow_ff(block.at("ff_context"), hidden)


def _grow_flux_single(block: Tree, hidden: int, head_dim: int) -> None:
    block.linear("norm.linear", 3 * hidden, hidden, bias=True)
    block.linear("proj_mlp", 4 * hidden, hidden, bias=True)
    block.linear("proj_out", hidden, 5 * hidden, bias=True)
    _grow_own(block.at("attn"), hidden, head_dim)


def _grow_own(attention: Tree, hidden: int, normed: int) -> None:
    """Add the projections of the image's stream; `normed` is the width of the norms, or 0."""
    for name in ("to_q", "to_k", "to_v"):
        attention.linear(name, hidden, hidden, bias=True)
    if normed:
        attention.norm("norm_q", normed)
        attention.norm("norm_k", normed)


def _grow_added(attention: Tree, hidden: int, normed: int) -> None:
    """Add the projections of the text's stream."""
    for name in ("add_q_proj", "add_k_proj", "add_v_proj"):
        attention.linear(name, hidden, hidden, bias=True)
    if normed:
        attention.norm("norm_added_q", normed)
        attention.norm("norm_added_k", normed)


def _grow_ff(tree: Tree, hidden: int) -> None:
    tree.linear("net.0.proj", 4 * hidden, hidden, bias=True)
    tree.linear("net.2", hidden, 4 * hidden, bias=True)


def _grow_time_text(tree: Tree, hidden: int, pooled: int) -> None:
    _grow_mlp(tree.at("timestep_embedder"), hidden, _TIME_CHANNELS)
    _grow_mlp(tree.at("text_embedder"), hidden, pooled)


def _grow_mlp(tree: Tree, hidden: int, inputs: int) -> None:
    tree.linear("linear_1", hidden, inputs, bias=True)
    tree.linear("linear_2", hidden, hidden, bias=True)


def _stack(
    hidden: int, layers: int, heads: int, head_dim: int, *, qk_norm: bool, single: bool
) -> Stack:
    return Stack(
        part="denoiser",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn=4 * hidden,
        gated=False,
        norm="layer",
        norms=1 if single else 4,
        qk_norm=qk_norm,
        causal=False,
        joint="single" if single else "double",
    )
