"""The layers of a built model: where they are, which are alike, and the facts of each kind."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from msgspec import Struct

from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Experts, LatentAttention, Part, Stack

_DEPTHS: Final = ("num_hidden_layers", "num_layers")
"""Keys of a config with the number of layers; of LongCat's, whose layers hold two attentions, the
first counts those (transformers 5.23 `models/longcat_flash/configuration_longcat_flash.py`)."""
_LAYER_LISTS: Final = (
    "layer_types",
    "mlp_layer_types",
    "layers_block_type",
    "block_types",
    "kv_sharing_modes",
    "attention_window",
)
"""Config keys of lists with one entry per layer."""
WINDOWS: Final = {"sliding_window": "sliding", "attention_chunk_size": "chunked"}
"""Config keys with the number of tokens that layers of a kind attend to, and the prefix of the
kind's word."""
_PARTS: Final[Mapping[str, Part]] = {
    "multi_modal_projector": "projector",
    "image_newline": "projector",
    "merger": "projector",
    "connector": "projector",
    "embed_vision": "projector",
    "embed_audio": "projector",
    "vision": "vision",
    "visual": "vision",
    "image": "vision",
    "audio": "audio",
}
"""Words at the start of a dotted path that name the part of a model to which a module belongs."""
_EXPERTS: Final = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_ACTIVE: Final = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_top_k",
    "moe_topk",
    "top_k_experts",
)
_INNER: Final = (
    "moe_intermediate_size",
    "expert_ffn_hidden_size",
    "intermediate_size",
    "ffn_hidden_size",
)


class Layers(Struct, frozen=True):
    """The list of a model's layers."""

    path: str
    """Dotted path of the list."""
    kinds: tuple[tuple[int, ...], ...]
    """Indices of the layers of each kind, by first appearance."""

    @property
    def count(self) -> int:
        """The number of layers."""
        return sum(map(len, self.kinds))


def part_of(path: str) -> Part:
    """The part of a model to which a module belongs, by its dotted path."""
    first = ".".join(path.split(".")[:3])
    return next((part for word, part in _PARTS.items() if word in first), "text")


def layers_of(model: torch.nn.Module, config: Any, part: Part = "text", within: str = "") -> Layers:
    """Find the layers of a part of a model, and group those that are alike.

    Layers are alike if they hold modules of the same shapes, have the same switches, and have one
    word in the config's lists. `within`: the module that holds the layers, if another one may have
    as many. Raises Untraceable if no list of the model has as many layers as the config sets.
    """
    counts = [int(each) for each in (getattr(config, n, None) for n in _DEPTHS) if each]
    if not counts:
        raise Untraceable(f"the config of its {part} modules names no number of layers")
    lists = [
        (path, module)
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList) and part_of(path) == part
        if not within or path.startswith(f"{within}.")
    ]
    found = next((each for count in counts for each in lists if len(each[1]) == count), None)
    if found is None:
        raise Untraceable(
            f"no list of {part} modules has {counts[0]} layers, as num_hidden_layers says"
        )
    path, modules = found
    groups: dict[Any, list[int]] = {}
    for at, layer in enumerate(modules):
        words = _words(config, at, len(modules))
        groups.setdefault((_shapes(layer), _switches(layer), words), []).append(at)
    return Layers(path, tuple(map(tuple, groups.values())))


def _shapes(layer: torch.nn.Module) -> frozenset[tuple[str, tuple[int, ...]]]:
    return frozenset((name, tuple(value.shape)) for name, value in layer.named_parameters())


def _switches(layer: torch.nn.Module) -> tuple[tuple[str, bool], ...]:
    """A layer's own switches, such as of the blocks that every other one of PEGASUS-X shifts."""
    own = ((name, value) for name, value in vars(layer).items() if isinstance(value, bool))
    return tuple(sorted(own))


def _words(config: Any, at: int, count: int) -> tuple[str, ...]:
    lists = (getattr(config, name, None) for name in _LAYER_LISTS)
    return tuple(str(each[at]) for each in lists if isinstance(each, list) and len(each) == count)


class _Passing(torch.nn.Module):  # type: ignore[misc]  # torch is not typed
    """A substitute for a layer: it has the layer's plain attributes, and returns its input."""

    def __init__(self, layer: torch.nn.Module, hand: Callable[[], Any]) -> None:
        super().__init__()
        named = {name: value for name, value in vars(type(layer)).items() if _is_plain(value)}
        for name, value in {**named, **vars(layer)}.items():
            if not name.startswith("_"):
                setattr(self, name, value)
        self.hand = hand

    def forward(self, *_: Any, **__: Any) -> Any:
        return self.hand()


def _is_plain(value: Any) -> bool:
    """Whether an attribute of a class is a plain value, such as Inkling's kind of attention."""
    return isinstance(value, str | int | float)


def keep_layers(model: torch.nn.Module, layers: Layers, kept: Collection[int]) -> None:
    """Keep only some layers of a model; the others return the output of the last one before them.

    The depth does not change, so that tensors that the model makes for all layers keep their size.
    The first and the last layer are among those kept.
    """
    every = model.get_submodule(layers.path)
    given: list[Any] = []
    for at, layer in enumerate(every):
        if at in kept and at + 1 < len(every) and at + 1 not in kept:
            layer.register_forward_hook(lambda *passed: given.append(passed[-1]))
        elif at not in kept:
            # what was given is let go of before the next layer runs
            every[at] = _Passing(layer, given.pop if at + 1 in kept else lambda: given[-1])


def tower_of(model: torch.nn.Module, config: Any) -> tuple[Stack, ...]:
    """The facts of the layers of a vision tower; () if the model has no known tower.

    `config` is the tower's own.
    """
    if not getattr(config, "num_hidden_layers", None):
        return ()
    layers = layers_of(model, config, "vision")
    stacks = (stack_of(model, config, layers, kind) for kind in layers.kinds)
    return tuple(replace(each, part="vision", causal=False) for each in stacks)


def stack_of(model: torch.nn.Module, config: Any, layers: Layers, kind: Sequence[int]) -> Stack:
    """The facts of a kind of layer, from its modules' shapes and the config."""
    layer = model.get_submodule(f"{layers.path}.{kind[0]}")
    if getattr(config, "is_heterogeneous", False):
        config = config.per_layer_config[kind[0]]
    hidden = config.hidden_size
    heads, kv_heads, width = _heads(layer, config)
    norms = [m for m in layer.modules() if _is_norm(m)]
    rms = any(_is_rms(each) for each in norms)
    experts, latent = _experts(layer, config), _latent(config)
    window = _window(config, kind[0])
    return Stack(
        part="text",
        layers=len(kind),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=latent.nope_head_dim + latent.rope_head_dim if latent else width,
        ffn=0 if experts else _inner(layer, hidden),
        gated=any(name.rpartition(".")[2].startswith("gate") for name, _ in layer.named_modules()),
        norm="rms" if rms or not norms else "layer",
        norms=sum(each.weight.shape == (hidden,) for each in norms) or 2,
        qk_norm=any(each.weight.shape == (width,) for each in norms),
        window=window,
        windowed_layers=len(kind) if window else 0,
        softcap=bool(getattr(config, "attn_logit_softcapping", None)),
        experts=experts,
        latent=latent,
    )


def _latent(config: Any) -> LatentAttention | None:
    """Multi-head latent attention, by DeepSeek's names, which all families with it have."""
    rank = getattr(config, "kv_lora_rank", None)
    if not rank:
        return None
    return LatentAttention(
        query_rank=getattr(config, "q_lora_rank", None) or 0,
        key_value_rank=rank,
        rope_head_dim=config.qk_rope_head_dim,
        nope_head_dim=config.qk_nope_head_dim,
        value_head_dim=config.v_head_dim,
    )


def _is_norm(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.nn.Parameter) and weight.dim() == 1


def _is_rms(norm: torch.nn.Module) -> bool:
    """Whether a norm subtracts no mean. torch's LayerNorm may lack a bias; others are RMS then."""
    bare = not isinstance(norm, torch.nn.LayerNorm) and getattr(norm, "bias", None) is None
    return bare or "rms" in type(norm).__name__.lower()


def _heads(layer: torch.nn.Module, config: Any) -> tuple[int, int, int]:
    """Query heads, key-value heads and the width of a head, from projections if they show it."""
    heads = getattr(config, "num_attention_heads", None) or 1
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    for module in layer.modules():
        query, key = getattr(module, "q_proj", None), getattr(module, "k_proj", None)
        own = getattr(module, "head_dim", None)
        if isinstance(query, torch.nn.Linear) and isinstance(key, torch.nn.Linear) and own:
            return query.out_features // own or 1, key.out_features // own or 1, own
    return heads, kv_heads, width


def _window(config: Any, at: int) -> int | None:
    """The number of tokens that a layer attends to, by the layer's word in the config.

    A config without such words, as Mistral's, means all layers.
    """
    words = getattr(config, "layer_types", None)
    if not isinstance(words, list):
        used = getattr(config, "use_sliding_window", True)
        return getattr(config, "sliding_window", None) if used else None
    word = str(words[at]) if at < len(words) else ""
    named = (name for name, kind in WINDOWS.items() if word.startswith(kind))
    return next((int(each) for each in (getattr(config, n, None) for n in named) if each), None)


def _inner(layer: torch.nn.Module, hidden: int) -> int:
    """Inner width of a feed-forward: the inputs of the widest projection back to the stream."""
    back = (m for m in layer.modules() if isinstance(m, torch.nn.Linear))
    return max((m.in_features for m in back if m.out_features == hidden), default=hidden)


def _experts(layer: torch.nn.Module, config: Any) -> Experts | None:
    if not any("expert" in name for name, _ in layer.named_modules()):
        return None
    inside = getattr(config, "ffn_config", config)  # DBRX's
    count, active = _first(inside, _EXPERTS), _first(inside, _ACTIVE)
    if not count or not active:
        raise Untraceable("its config does not say how many experts there are, and how many work")
    stacked = next(
        (value.shape for name, value in layer.named_parameters() if name.endswith("down_proj")), ()
    )
    inner = min(stacked[1:]) if len(stacked) == 3 else _first(inside, _INNER)
    shared = [
        module.in_features
        for name, module in layer.named_modules()
        if "shared_expert" in name and name.endswith("down_proj")
        if isinstance(module, torch.nn.Linear)
    ]
    return Experts(count, active, inner, sum(shared))


def _first(config: Any, names: Sequence[str]) -> int:
    found: Iterator[Any] = (getattr(config, name, None) for name in names)
    return int(next((each for each in found if isinstance(each, int)), 0))
