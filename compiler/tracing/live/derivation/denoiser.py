"""From the config of a diffusion transformer to the architecture that diffusers builds from it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct

from tunec.compiler.tracing.live.denoiser_inputs import patch_of, traits_of
from tunec.compiler.tracing.live.denoiser_sample import Traits
from tunec.compiler.tracing.live.derivation.blocks import lists
from tunec.compiler.tracing.live.derivation.denoiser_measures import measures
from tunec.compiler.tracing.live.derivation.denoiser_pass import Blocks, Reduced
from tunec.compiler.tracing.live.derivation.module_tree import module_tree
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Stack
from tunec.schemas.models.denoiser import Denoiser


class Kind(Struct, frozen=True):
    """Equal blocks of one list."""

    path: str
    """Dotted path of the list."""
    places: tuple[int, ...]


def denoiser_of(config: Mapping[str, Any]) -> Architecture:
    """Build the class that a config names, and derive what the account needs from it.

    Raises Untraceable if diffusers has no such class, the class cannot be built, or its passes
    cannot be followed.
    """
    model = built(config)
    family = type(model).__name__
    traits = traits_of(family, model.forward)
    kinds = _kinds(model)
    modules = module_tree(model, "denoiser")
    stacks = [_stack(model, kind) for kind in kinds]
    blocks = _whole(kinds) if traits.whole else _reduce(model, kinds, traits)
    found = measures(Reduced(model, blocks), traits)
    patch = patch_of(model.config, traits)
    return Architecture(
        family=family,
        kind="diffusion",
        modules=modules,
        stacks=tuple(
            replace(stack, blocks=each.bytes, joint=each.joint, attends=each.attends)
            for stack, each in zip(stacks, found.blocks, strict=True)
        ),
        hidden=max(each.hidden for each in stacks),
        vocab=0,
        context=0,
        tied=False,
        latent_channels=getattr(model.config, "in_channels", 0) // traits.pack**2,
        latent_scale=traits.finer.get(getattr(model.config, "in_channels", 0), traits.scale),
        latent_patch=patch[1] * traits.pack,
        latent_time=patch[0] * traits.time,
        denoiser=Denoiser(
            _text(model, traits),
            found.rows,
            found.around,
            tuple(kind.path for kind in kinds),
            found.multiple,
            traits.oblong(model.config) if traits.oblong else 0,
        ),
    )


def _text(model: Any, traits: Traits) -> int:
    """Text tokens of a sample: the one length that the class takes, else the pipeline's."""
    fixed = traits.fixed(model.config) if traits.fixed else None
    return traits.text if fixed is None else fixed


def built(config: Mapping[str, Any]) -> Any:
    """The model of a config on meta. Raises Untraceable if it cannot be built."""
    import diffusers
    from diffusers.models import transformers, unets

    family = str(config["_class_name"])
    holders = (diffusers, transformers, unets)
    maker = next((getattr(each, family) for each in holders if hasattr(each, family)), None)
    if maker is None:
        raise Untraceable(f"diffusers {diffusers.__version__} has no class {family!r}")
    options = {key: value for key, value in config.items() if not key.startswith("_")}
    with torch.device("meta"):
        try:
            return _on_meta(maker(**options))
        except Exception as fault:  # noqa: BLE001  whatever the class says of the config
            told = str(fault).strip().partition("\n")[0]
            reason = f"{family} cannot be built: {type(fault).__name__}: {told}"
            raise Untraceable(reason) from None


def _on_meta(model: torch.nn.Module) -> torch.nn.Module:
    """Move all parameters of a model to meta: `torch.Tensor([...])` makes some elsewhere.

    diffusers 0.42 `models/resnet.py`, `AlphaBlender`.
    """
    for module in model.modules():
        for name, each in module.named_parameters(recurse=False):
            if not each.is_meta:
                setattr(module, name, torch.nn.Parameter(each.to("meta")))
    return model


def _kinds(model: torch.nn.Module) -> list[Kind]:
    """The blocks of a model by list and shapes, in the order in which the model holds them."""
    kinds: list[Kind] = []
    for path, blocks in lists(model):
        groups: dict[frozenset[Any], list[int]] = {}
        for at, block in enumerate(blocks):
            shapes = frozenset((n, tuple(v.shape)) for n, v in block.named_parameters())
            groups.setdefault(shapes, []).append(at)
        kinds += [Kind(path, tuple(each)) for each in groups.values()]
    if not kinds:
        raise Untraceable("it has no list of blocks")
    return kinds


def _stack(model: torch.nn.Module, kind: Kind) -> Stack:
    """The facts of a kind of block that its modules show."""
    block = model.get_submodule(f"{kind.path}.{kind.places[0]}")
    heads = next((m.heads for m in block.modules() if isinstance(_heads(m), int)), 1)
    sides = [m.weight.shape for m in block.modules() if isinstance(m, torch.nn.Linear)]
    inputs = [shape[1] for shape in sides]
    hidden = max(set(inputs), key=inputs.count) if inputs else 1
    norms = [m for m in block.modules() if "norm" in type(m).__name__.lower()]
    return Stack(
        part="denoiser",
        layers=len(kind.places),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=max(hidden // heads, 1),
        ffn=max((shape[1] for shape in sides if shape[0] == hidden), default=hidden),
        gated=False,
        norm="rms" if norms and all("RMS" in type(m).__name__ for m in norms) else "layer",
        causal=False,
    )


def _heads(module: torch.nn.Module) -> Any:
    return getattr(module, "heads", None)


def _whole(kinds: Sequence[Kind]) -> list[Blocks]:
    """The block of each kind that is measured in a model with all its blocks: the second."""
    return [Blocks(kind.path, kind.places[min(1, len(kind.places) - 1)]) for kind in kinds]


def _reduce(model: Any, kinds: Sequence[Kind], traits: Traits) -> list[Blocks]:
    """Keep only some blocks of each kind in a model; return where each kind is measured.

    Two blocks of each kind stay, of which the second is measured: the first one meets the
    operations before the list. A list keeps one more block after them, since the last block meets
    the operations after the list.
    """
    kept: dict[str, list[int]] = {}
    for kind in kinds:
        kept.setdefault(kind.path, []).extend((*kind.places[:2], *kind.places[2:][-1:]))
    for path, places in kept.items():
        places.sort()
        every = model.get_submodule(path)
        owner, _, leaf = path.rpartition(".")
        chosen = torch.nn.ModuleList([every[at] for at in places])
        setattr(model.get_submodule(owner), leaf, chosen)
    if traits.numbered:
        _renumber(model, kept, traits.numbered)
    if traits.placed:
        key, path = traits.placed
        model.register_to_config(**{key: list(range(len(kept[path])))})
    return [
        Blocks(kind.path, kept[kind.path].index(kind.places[min(1, len(kind.places) - 1)]))
        for kind in kinds
    ]


def _renumber(model: Any, kept: Mapping[str, Sequence[int]], key: str) -> None:
    """Let a list of places of blocks in a config name those that are left, where they are now."""
    longest = max(kept.values(), key=max)
    named = getattr(model.config, key)
    model.register_to_config(**{key: [at for at, place in enumerate(longest) if place in named]})
