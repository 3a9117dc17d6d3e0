"""The catalogue's cards as parameters of a test."""

from collections.abc import Iterable
from typing import Any

import pytest

from tunec.schemas.models.catalogue import card


def family(name: str) -> str:
    """The family of a card: `model_type`, diffusers' class or SwissArmyTransformer's."""
    keys = ("model_type", "_class_name", "model_class")
    found = (card(name).config.get(key) for key in keys)
    return next(each for each in found if each)


def first_of_each_family(names: Iterable[str]) -> set[str]:
    """One card for each family that there is among these."""
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(family(name), name)
    return set(first.values())


def one_of_each_family(names: Iterable[str]) -> list[Any]:
    """Cards as parameters: the first of each family in every run, the others nightly.

    What differs between cards of a family is widths, and those are held for every card by the
    published count of its parameters (`tests/schemas/test_models.py`).
    """
    every = tuple(names)
    first = first_of_each_family(every)
    later = (pytest.mark.nightly,)
    return [pytest.param(name, marks=() if name in first else later) for name in every]


def require_tower(name: str) -> None:
    """Skip a test of the real class if its vision tower is in a package that is missing here."""
    if family(name) == "gemma3n":
        pytest.importorskip("timm", reason="Gemma 3n's vision tower is one of timm's")
