"""Axolotl's patterns of what is trained, asked about the weights of every family of models."""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import get_args

import pytest
from packaging.version import Version
from tests.cards import first_of_each_family
from tests.plans import plan_of

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.analyses.trainable import trained_modules
from tunec.compiler.emit import emit
from tunec.compiler.read import found_plain, read
from tunec.schemas.models.architecture import Architecture, Module
from tunec.schemas.models.catalogue import card, card_names
from tunec.schemas.terms import FreezablePart
from tunec.targets.registry import TARGETS

PARTS = get_args(FreezablePart)
EVERY = [kept for size in (1, 2, 3) for kept in combinations(PARTS, size)]
KINDS = ("causal-lm", "vision-language")
FULL = {"adapter.kind": "none", "adapter.rank": 0, "adapter.targets": ()}
FILE = "axolotl.yaml"


def _architectures() -> Iterator[Architecture]:
    """One of each family and kind that transformers' own classes load."""
    for name in sorted(first_of_each_family(card_names())):
        found = derive(card(name).config)
        if found.kind in KINDS and not found.remote_code:
            yield found


def _weights(module: Module) -> Iterator[str]:
    return (name if module.kind == "parameter" else f"{name}.weight" for name in module.names())


def _patterns(frozen: tuple[str, ...]) -> list[str]:
    plan = plan_of(FULL, {"adapter.frozen": frozen})
    artifacts, _ = emit(TARGETS["axolotl"], plan, Version("0.19.0"))
    return next(each.values["unfrozen_parameters"] for each in artifacts if each.name == FILE)


def _matches(patterns: list[str], name: str) -> bool:
    """axolotl 0.13.2 to 0.19.0 utils/freeze.py `LayerNamePattern`."""
    return any(re.match(re.sub(r"\.(?!\+)", r"\.", each), name) for each in patterns)


@pytest.mark.parametrize("frozen", EVERY, ids="-".join)
def test_the_weights_of_frozen_parts_are_those_that_no_pattern_matches(frozen):
    patterns, adapter = _patterns(frozen), plan_of(FULL, {"adapter.frozen": frozen}).adapter
    asked = 0
    for each in _architectures():
        if "text" in frozen and each.kind != "vision-language":
            continue
        trained = set(trained_modules(each, adapter))
        for module in each.modules:
            if not module.fixed:
                got = {_matches(patterns, name) for name in _weights(module)}
                assert got == {module in trained}, (each.family, module.path)
                asked += 1
    assert asked > 300


@pytest.mark.parametrize("frozen", EVERY, ids="-".join)
def test_what_is_written_is_read_again(frozen):
    values = {"base_model": "m", "unfrozen_parameters": _patterns(frozen)}
    back = read(TARGETS["axolotl"], {FILE: found_plain(values)}, Version("0.19.0"))
    assert {each.value for each in back if each.slot == "adapter.frozen"} == {frozen}


@pytest.mark.parametrize(
    ("said", "frozen"),
    [
        ({}, {()}),
        ({"freeze_mm_modules": True}, {("vision", "projector")}),
        ({"unfrozen_parameters": ["^lm_head.weight$"]}, set()),
        ({"adapter": "lora", "unfrozen_parameters": [".+.lora_.+"]}, set()),
    ],
)
def test_what_others_write_is_read_where_it_names_parts(said, frozen):
    back = read(
        TARGETS["axolotl"], {FILE: found_plain({"base_model": "m", **said})}, Version("0.19")
    )
    assert {each.value for each in back if each.slot == "adapter.frozen"} == frozen
