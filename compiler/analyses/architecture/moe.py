"""Decoders with a mixture of experts.

Transformers 5 holds all experts of a layer in two three-dimensional parameters
(`experts.gate_up_proj`, `experts.down_proj`) where transformers 4 had a linear layer for each; the
tree here is that of transformers 5.23.0, `models/<family>/modeling_<family>.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.architecture.decoder import (
    Backbone,
    Dimensions,
    Names,
    Read,
    mlp,
    separate_attention,
    stack,
)
from tunec.compiler.analyses.architecture.decoders import (
    Dialect,
    dimensions,
    every_layer,
    typed_windows,
)
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.compiler.analyses.architecture.tree import Tree, where
from tunec.schemas.models.architecture import Experts, Stack

Sparse = Callable[[Facts, int], Sequence[bool]]
"""From a config and its number of layers: which layers have experts."""


def every_one(_: Facts, layers: int) -> Sequence[bool]:
    """Report every layer as one with experts."""
    return [True] * layers


def stepped(facts: Facts, layers: int) -> Sequence[bool]:
    """Qwen: every `decoder_sparse_step`-th layer that `mlp_only_layers` does not name."""
    step, dense = facts.count("decoder_sparse_step"), facts.sizes("mlp_only_layers")
    return [(layer + 1) % step == 0 and layer not in dense for layer in range(layers)]


def after_first(facts: Facts, layers: int) -> Sequence[bool]:
    """DeepSeek: all but the first `first_k_dense_replace` layers."""
    first = facts.size("first_k_dense_replace")
    return [layer >= first for layer in range(layers)]


def lower_odd_layers(facts: Facts, layers: int) -> tuple[int | None, int]:
    """Qwen2-MoE: with `use_sliding_window`, every other layer below `max_window_layers`."""
    if not facts.flag("use_sliding_window"):
        return None, 0
    return typed_windows(facts, (min(facts.size("max_window_layers"), layers) + 1) // 2)


def every_if_used(facts: Facts, layers: int) -> tuple[int | None, int]:
    """Qwen3-MoE: with `use_sliding_window`, all layers."""
    return every_layer(facts, layers) if facts.flag("use_sliding_window") else (None, 0)


class Mixture(Struct, frozen=True, kw_only=True):
    """The config keys and module names of a family's experts."""

    count: str = "num_experts"
    """Config key of the number of experts."""
    ffn: str = "moe_intermediate_size"
    """Config key of one expert's inner width."""
    block: str = "mlp"
    router: str = "gate"
    shared: str = ""
    """Module of the experts that every token passes through."""
    shared_count: str = ""
    """Config key of the shared experts' total width, in multiples of `ffn`."""
    shared_ffn: str = ""
    """Config key of the shared experts' inner width, if it is not a multiple of `ffn`."""
    shared_gate: bool = False
    sparse: Sparse = every_one


class ExpertLayers(Struct, frozen=True):
    """The feed-forwards of a decoder: experts in some layers, dense in the others."""

    mixture: Mixture
    experts: Experts
    sparse: Sequence[int]
    dense: Sequence[int]
    ffn: int

    def __call__(self, root: Tree, names: Names, sizes: Dimensions) -> None:
        """Add the feed-forwards of all layers."""
        dense = root.each(names.layers, self.dense).at(names.mlp)
        mlp(dense, names, sizes.hidden, self.ffn, bias=sizes.mlp_bias)
        block = root.each(names.layers, self.sparse).at(self.mixture.block)
        self._grow_experts(block, sizes.hidden)
        if self.experts.shared_ffn:
            shared = block.at(self.mixture.shared)
            mlp(shared, names, sizes.hidden, self.experts.shared_ffn, bias=sizes.mlp_bias)
            if self.mixture.shared_gate:
                block.linear(f"{self.mixture.shared}_gate", 1, sizes.hidden)

    def _grow_experts(self, block: Tree, hidden: int) -> None:
        count, ffn = self.experts.count, self.experts.ffn
        block.parameter(f"{self.mixture.router}.weight", count, hidden)
        block.parameter("experts.gate_up_proj", count, 2 * ffn, hidden)
        block.parameter("experts.down_proj", count, hidden, ffn)


def expert_layers(facts: Facts, mixture: Mixture, layers: int) -> ExpertLayers:
    """Read how the experts of a config are arranged."""
    count, ffn = facts.count(mixture.count), facts.count(mixture.ffn)
    shared = facts.size(mixture.shared_ffn) if mixture.shared_ffn else 0
    if mixture.shared_count:
        shared = ffn * facts.size(mixture.shared_count)
    active = facts.count("num_experts_per_tok")
    flags = mixture.sparse(facts, layers)
    return ExpertLayers(
        mixture,
        Experts(count=count, active=active, ffn=ffn, shared_ffn=shared),
        where(flags),
        where([not flag for flag in flags]),
        facts.count("intermediate_size"),
    )


def expert_stacks(names: Names, sizes: Dimensions, layers: ExpertLayers) -> tuple[Stack, ...]:
    """Sum up the dense layers and the layers with experts, a stack each."""
    stacks = (
        stack(names, sizes, layers=len(layers.dense), ffn=layers.ffn),
        stack(names, sizes, layers=len(layers.sparse), ffn=0, experts=layers.experts),
    )
    return tuple(kind for kind in stacks if kind.layers)


def mixture_of_experts(dialect: Dialect, mixture: Mixture, facts: Facts) -> Backbone:
    """Read a decoder with experts and ordinary attention."""
    sizes = dimensions(facts, dialect, ffn=mixture.ffn)
    layers = expert_layers(facts, mixture, sizes.layers)
    stacks = expert_stacks(dialect.names, sizes, layers)
    return Backbone(dialect.names, sizes, stacks, separate_attention, layers)


_MIXTRAL: Final = Mixture(count="num_local_experts", ffn="intermediate_size")
_PLAIN: Final = Dialect(qkv_bias=False, output_bias=False, windows=every_layer)

MIXTURES: Final[Mapping[str, tuple[Dialect, Mixture]]] = {
    "mixtral": (_PLAIN, _MIXTRAL),
    "qwen2_moe": (
        Dialect(qkv_bias="qkv_bias", output_bias=False, windows=lower_odd_layers),
        Mixture(
            shared="shared_expert",
            shared_ffn="shared_expert_intermediate_size",
            shared_gate=True,
            sparse=stepped,
        ),
    ),
    "qwen3_moe": (Dialect(qk_norm="head", windows=every_if_used), Mixture(sparse=stepped)),
    "olmoe": (Dialect(qk_norm="width"), Mixture(ffn="intermediate_size")),
    "granitemoe": (
        Dialect(),
        Mixture(
            count="num_local_experts",
            ffn="intermediate_size",
            block="block_sparse_moe",
            router="router",
        ),
    ),
}

MOE_DECODERS: Final[Mapping[str, Read]] = {
    family: partial(mixture_of_experts, dialect, mixture)
    for family, (dialect, mixture) in MIXTURES.items()
}
