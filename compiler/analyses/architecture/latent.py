"""Multi-head latent attention: DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437).

Read from transformers 5.23.0, `models/deepseek_v2/modeling_deepseek_v2.py` and
`models/deepseek_v3/modeling_deepseek_v3.py`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.architecture.decoder import Backbone, Dimensions, Names, Read
from tunec.compiler.analyses.architecture.decoders import Dialect, dimensions
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.moe import (
    Mixture,
    after_first,
    expert_layers,
    expert_stacks,
)
from tunec.compiler.analyses.architecture.tree import Tree
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import LatentAttention


class LatentLayers(Struct, frozen=True):
    """The attention of a decoder whose keys and values pass through a narrow latent."""

    latent: LatentAttention
    bias: bool

    def __call__(self, root: Tree, names: Names, sizes: Dimensions) -> None:
        """Add the attention of all layers."""
        latent, hidden, heads = self.latent, sizes.hidden, sizes.heads
        attention = root.each(names.layers, range(sizes.layers)).at(names.attention)
        self._grow_query(attention, hidden, heads)
        compressed = latent.key_value_rank + latent.rope_head_dim
        attention.linear("kv_a_proj_with_mqa", compressed, hidden, bias=self.bias)
        attention.norm("kv_a_layernorm", latent.key_value_rank)
        expanded = heads * (latent.nope_head_dim + latent.value_head_dim)
        attention.linear("kv_b_proj", expanded, latent.key_value_rank)
        attention.linear("o_proj", hidden, heads * latent.value_head_dim, bias=self.bias)

    def _grow_query(self, attention: Tree, hidden: int, heads: int) -> None:
        latent = self.latent
        width = heads * (latent.nope_head_dim + latent.rope_head_dim)
        if not latent.query_rank:
            attention.linear("q_proj", width, hidden)
            return
        attention.linear("q_a_proj", latent.query_rank, hidden, bias=self.bias)
        attention.norm("q_a_layernorm", latent.query_rank)
        attention.linear("q_b_proj", width, latent.query_rank)


def deepseek(dialect: Dialect, mixture: Mixture, facts: Facts) -> Backbone:
    """Read a decoder with latent attention and experts."""
    latent = LatentAttention(
        query_rank=facts.size("q_lora_rank"),
        key_value_rank=facts.count("kv_lora_rank"),
        rope_head_dim=facts.count("qk_rope_head_dim"),
        nope_head_dim=facts.count("qk_nope_head_dim"),
        value_head_dim=facts.count("v_head_dim"),
    )
    head_dim = latent.nope_head_dim + latent.rope_head_dim
    sizes = replace(dimensions(facts, dialect), head_dim=head_dim)
    layers = expert_layers(facts, mixture, sizes.layers)
    stacks = expert_stacks(dialect.names, sizes, layers)
    stacks = tuple(replace(kind, latent=latent) for kind in stacks)
    attention = LatentLayers(latent, facts.flag("attention_bias"))
    return Backbone(dialect.names, sizes, stacks, attention, layers)


_MIXTURE: Final = Mixture(
    count="n_routed_experts",
    shared="shared_experts",
    shared_count="n_shared_experts",
    sparse=after_first,
)

LATENT_DECODERS: Final[Mapping[str, Read]] = {
    "deepseek_v2": partial(deepseek, Dialect(mlp_bias="mlp_bias"), _MIXTURE),
    "deepseek_v3": partial(deepseek, Dialect(), _MIXTURE),
}
