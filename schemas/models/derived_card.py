"""Derived cards: architectures measured on a library's classes, stored as files."""

import hashlib
import json
import re
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Kind, Module, Part

VERSION: Final = 1
_OF_NO_MODULE: Final = frozenset(
    {
        *("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"),
        *("auto_map", "_diffusers_version", "quantization_config"),
    }
)
"""Keys of a config that do not affect the modules built from it."""


class DerivedCard(Struct, frozen=True):
    """A model as the accounts need it, with the config and release it was made from."""

    tunec_card: int
    """Version of this format."""
    family: str
    model: str
    """The repository of the config; "": the config came alone."""
    release: str
    """The library that built the class, and its version: `transformers 5.23.0`."""
    config: Mapping[str, Any]
    """The config.json that it was made from."""
    architecture: Architecture

    @classmethod
    def of_json(cls, content: bytes) -> Self:
        """Read a card's file. Raises ValueError if it is malformed."""
        found = msgspec.json.decode(content, type=cls)
        _check(found.architecture)
        return replace(found, architecture=_hashable(found.architecture))

    def to_json(self) -> bytes:
        """The card's file, without fields that have their default."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


_SIDES: Final[Mapping[Kind, int]] = {"linear": 2, "embedding": 2, "router": 2, "conv": 3}
"""The least number of dimensions of the weight, by kind of module."""
_PATH: Final = re.compile(r"[^{}\x00-\x20]*(\{\}[^{}\x00-\x20]*)*")


def _check(found: Architecture) -> None:
    """Raise ValueError for an impossible architecture, since anyone may have written the file."""
    # a tower may be one of convolutions, without layers
    needed: Part | None = "text" if found.kind != "autoencoder" else None
    if found.kind == "diffusion":
        needed = None if found.unet else "denoiser"
    if needed and needed not in {each.part for each in found.stacks}:
        raise ValueError(f"it has no layers of the part {needed}")
    measured = [{each.way for each in stack.blocks} for stack in found.stacks if stack.blocks]
    blocks = sum(stack.part == "denoiser" for stack in found.stacks)
    if measured and (len(measured) < blocks or any(each != measured[0] for each in measured)):
        raise ValueError("its blocks are not all measured in the same ways")
    for each in found.modules:
        if _PATH.fullmatch(each.path) is None:
            raise ValueError(f"{each.path!r} is no name of a module")
        if each.indices and prod(map(len, each.indices)) != each.copies:
            raise ValueError(f"{each.path} has {each.copies} copies, and other indices")
        if len(each.shape) < _fewest_sides(each):
            raise ValueError(f"{each.path} is of the kind {each.kind}, and its shape too short")
        if not each.shape or min(each.shape) < 1:
            raise ValueError(f"{each.path} has a side of nothing in its shape")


def _fewest_sides(module: Module) -> int:
    return max(_SIDES.get(module.kind, 0), 2 if ".experts" in module.path else 0)


def _hashable(found: Architecture) -> Architecture:
    """Turn lists of indices, as JSON has them, into tuples."""
    modules = (
        replace(each, indices=tuple(map(tuple, each.indices))) if each.indices else each
        for each in found.modules
    )
    return replace(found, modules=tuple(modules))


def card_name(config: Mapping[str, Any]) -> str:
    """The file name of a config's card: its family, and a digest of the config."""
    facts = {key: value for key, value in config.items() if key not in _OF_NO_MODULE}
    text = json.dumps(facts, sort_keys=True, default=str)
    family = config.get("model_type") or config.get("_class_name")
    return f"{family}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


@cached(256)
def shipped(name: str) -> DerivedCard | None:
    """The card of this name that comes with tunec; None: there is none."""
    path = Path(__file__).parent / "derived" / name
    return DerivedCard.of_json(path.read_bytes()) if path.exists() else None
