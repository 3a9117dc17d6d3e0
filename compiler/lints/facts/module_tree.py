"""The model's module tree as rules about LoRA ask it."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from tunec.compiler.lints.facts.lora import Targets

if TYPE_CHECKING:
    from tunec.schemas.models.architecture import Architecture, Module


class NoRegex(ValueError):
    """A string that is no regular expression; the message says why."""


@lru_cache(maxsize=256)
def adapted(
    architecture: "Architecture", targets: Targets, excluded: tuple[str, ...] = ()
) -> "tuple[Module, ...]":
    """The modules that PEFT adapts. Raises NoRegex for a string that is no regular expression."""
    from tunec.compiler.analyses.architecture import matching
    from tunec.compiler.analyses.architecture.lora import HalfTarget

    try:
        return matching(architecture, targets, excluded)
    except re.error as fault:
        raise NoRegex(str(fault)) from None
    except HalfTarget:
        return tuple(architecture.modules)[:1]  # refused for a reason of its own


def unmatched(architecture: "Architecture", names: Iterable[str]) -> tuple[str, ...]:
    """The names of a list that match no module of the tree."""
    return tuple(name for name in names if not adapted(architecture, (name,)))


@lru_cache(maxsize=64)
def parts(architecture: "Architecture") -> frozenset[str]:
    """Every part of every dotted name: blocks such as `self_attn` as well as layers."""
    paths = [each.path for each in architecture.modules]
    head = [architecture.head] if architecture.head else []
    return frozenset(part for path in (*paths, *head) for part in path.split(".") if part != "{}")


@lru_cache(maxsize=64)
def leaves(architecture: "Architecture", kinds: tuple[str, ...]) -> frozenset[str]:
    """The last parts of the names of modules of these kinds."""
    found = (each.path for each in architecture.modules if each.kind in kinds)
    return frozenset(path.rpartition(".")[2] for path in found)


def layers(architecture: "Architecture") -> int:
    """Layers of the longest text stack; 0 where there is none."""
    return max((each.layers for each in architecture.stacks if each.part == "text"), default=0)


def usual(architecture: "Architecture") -> tuple[str, ...]:
    """The names of the linear layers in the text part's own layers, in their order."""
    found = (
        each.path.rpartition(".")[2]
        for each in architecture.modules
        if each.kind == "linear" and each.part in ("text", "denoiser") and "{}" in each.path
    )
    return tuple(dict.fromkeys(found))
