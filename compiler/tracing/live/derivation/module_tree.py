"""A built model's parameters as the modules of an architecture: one entry for equal copies."""

from collections.abc import Iterator, Sequence
from math import prod

import torch
from msgspec import Struct

from tunec.schemas.models.architecture import Kind, Module, Part


class Holder(Struct, frozen=True):
    """One module of the model that holds parameters, or one bare parameter."""

    path: str
    kind: Kind
    shape: tuple[int, ...]
    bias: int
    fixed: bool = False

    @property
    def pattern(self) -> str:
        """The path with `{}` in place of numbers."""
        return ".".join("{}" if each.isdigit() else each for each in self.path.split("."))

    @property
    def place(self) -> tuple[int, ...]:
        """The numbers of the path."""
        return tuple(int(each) for each in self.path.split(".") if each.isdigit())


def module_tree(
    model: torch.nn.Module, part: Part = "text", embedding: torch.nn.Module | None = None
) -> tuple[Module, ...]:
    """The modules of a model that hold parameters, tied weights once, in the model's order.

    `embedding` holds the weight that it shares with a head before it: a classifier of the same body
    has another head.
    """
    groups: dict[tuple[str, Kind, tuple[int, ...], int, bool], list[tuple[int, ...]]] = {}
    for each in holders(model, embedding):
        key = each.pattern, each.kind, each.shape, each.bias, each.fixed
        groups.setdefault(key, []).append(each.place)
    return tuple(
        Module(path, kind, shape, part, bias, copies, indices, fixed)
        for (path, kind, shape, bias, fixed), places in groups.items()
        for copies, indices in _products(places)
    )


def holders(model: torch.nn.Module, embedding: torch.nn.Module | None = None) -> Iterator[Holder]:
    """Every module with its own parameters; experts in one tensor are bare parameters."""
    seen = {id(value) for value in embedding.parameters()} if embedding is not None else set()
    for path, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if module is not embedding:
            own = {name: value for name, value in own.items() if id(value) not in seen}
        seen.update(map(id, own.values()))
        kind = _kind(module, own)
        if kind is not None:
            bias = own.get("bias")
            size = 0 if bias is None else bias.numel()
            fixed = not any(value.requires_grad for value in own.values())
            yield Holder(path, kind, tuple(own["weight"].shape), size, fixed)
            own = {name: each for name, each in own.items() if name not in ("weight", "bias")}
        for name, value in own.items():
            own_name = f"{path}.{name}".lstrip(".")
            yield Holder(own_name, "parameter", tuple(value.shape), 0, not value.requires_grad)


def is_plain_linear(module: torch.nn.Module) -> bool:
    """Whether a module is a linear layer that can be replaced: not a router with two outputs.

    bitsandbytes' layers replace only such layers (transformers 5.23 `integrations/bitsandbytes.py`,
    `replace_with_bnb_linear`: `type(module) is nn.Linear`).
    """
    return type(module) is torch.nn.Linear


def _kind(module: torch.nn.Module, own: dict[str, torch.nn.Parameter]) -> Kind | None:
    """The kind of a module; None: its parameters are listed as bare parameters."""
    if "weight" not in own:
        return None
    if is_plain_linear(module):
        return "linear"
    if isinstance(module, torch.nn.Linear) and "Router" in type(module).__name__:
        return "router"
    if isinstance(module, torch.nn.Embedding):
        return "embedding"
    if "conv" in type(module).__name__.lower():
        return "conv"
    if own["weight"].dim() == 1 and set(own) <= {"weight", "bias"}:
        return "norm"
    return None


def _products(
    places: Sequence[tuple[int, ...]],
) -> Iterator[tuple[int, tuple[Sequence[int], ...]]]:
    """Places as products of a sequence for each number; several where they are no product.

    None are given for one number that counts from 0.
    """
    if places in ([()], [(at,) for at in range(len(places))]):
        yield len(places), ()
        return
    yield from _axes(places)


def _axes(places: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, tuple[Sequence[int], ...]]]:
    """Places as products, each with a sequence for every number."""
    axes = tuple(tuple(sorted({place[n] for place in places})) for n in range(len(places[0])))
    if prod(map(len, axes)) == len(places):
        yield len(places), axes
        return
    for first in sorted({place[0] for place in places}):
        inner = [place[1:] for place in places if place[0] == first]
        for copies, rest in _axes(inner):
            yield copies, ((first,), *rest)
