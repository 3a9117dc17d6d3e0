"""MiniCPM-V 2.5 to 4.5 in their own code: slices of an image, each resampled to a few tokens.

MiniCPM-Llama3-V-2.5: `modeling_minicpmv.py` and `resampler.py` of openbmb/MiniCPM-Llama3-V-2_5.
MiniCPM-V-2.6: `modeling_minicpmv.py`, `modeling_navit_siglip.py` and `resampler.py` of
openbmb/MiniCPM-V-2_6. MiniCPM-V 4 and 4.5 differ in the decoder: vllm-project/vllm,
`vllm/model_executor/models/minicpmv.py`, `init_llm` of MiniCPMV4_0 and MiniCPMV4_5.
"""

from typing import Final

from tunec.compiler.analyses.architecture.assembly import Parts, vision_language
from tunec.compiler.analyses.architecture.decoders import DIALECTS, llama_like
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.compiler.analyses.architecture.vision import headless_siglip
from tunec.schemas.models.architecture import Architecture, ImageTokens, Stack

_DECODERS: Final = {"2.5": "llama", "2.6": "qwen2", "4.0": "llama", "4.5": "qwen3"}
"""`MiniCPMV.__init__` of each version: LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM."""


def minicpmv(facts: Facts) -> Architecture:
    """Derive MiniCPM-V; the config's `version` decides which decoder it has."""
    version = str(facts.get("version"))
    if version not in _DECODERS:
        facts.refuse("version", "one of " + ", ".join(_DECODERS))
    decoder = _DECODERS.get(version, "qwen2")
    text = llama_like(DIALECTS[decoder], facts.as_family(decoder))
    vision = facts.section("vision_config", "idefics2_vision")
    tower = headless_siglip(_shortened(vision) if _drops_layer(facts) else vision)
    hidden, queries = text.sizes.hidden, facts.count("query_num")

    def grow(tree: Tree) -> None:
        tower.grow(tree.at("vpm", "vision"))
        _grow_resampler(tree.at("resampler", "projector"), queries, hidden, tower.hidden)

    slices = facts.section("slice_config", "minicpmv slices")
    images = ImageTokens(
        rule="minicpm-v",
        image_size=slices.count_or("scale_resolution", facts.count_or("image_size", 448)),
        patch=slices.count_or("patch_size", tower.patch),
        tokens=queries,
        max_slices=slices.count_or("max_slice_nums", 1),
    )
    parts = Parts(
        backbone=text,
        tower=tower.stacks,
        projector=(_resampler_stack(hidden, tower.hidden),),
        images=images,
        grow=grow,
        tied=text.sizes.tied,
        text_root="llm.model",
        head_root="llm",
        remote_code=True,
    )
    return vision_language(facts, parts)


def _drops_layer(facts: Facts) -> bool:
    """`drop_vision_last_layer`: true if absent (`MiniCPMVConfig.__init__`)."""
    key = "drop_vision_last_layer"
    return facts.flag(key) if facts.has(key) else True


def _shortened(vision: Facts) -> Facts:
    layers = max(vision.count("num_hidden_layers") - 1, 1)
    return vision.with_value("num_hidden_layers", layers)


def _grow_resampler(tree: Tree, queries: int, hidden: int, width: int) -> None:
    """`Resampler`: learned queries attend once to the patches (a torch MultiheadAttention)."""
    tree.parameter("query", queries, hidden)
    if width != hidden:
        tree.linear("kv_proj", hidden, width)
    tree.parameter("attn.in_proj_weight", 3 * hidden, hidden)
    tree.parameter("attn.in_proj_bias", 3 * hidden)
    tree.linear("attn.out_proj", hidden, hidden, bias=True)
    for name in ("ln_q", "ln_kv", "ln_post"):
        tree.norm(name, hidden, bias=True)
    tree.parameter("proj", hidden, hidden)


def _resampler_stack(hidden: int, width: int) -> Stack:
    heads = max(hidden // 128, 1)
    return Stack(
        part="projector",
        layers=1,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=0,
        gated=False,
        norm="layer",
        norms=3,
        causal=False,
        cross_attention=width,
    )
