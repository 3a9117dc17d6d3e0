"""The real models, on the meta device, to compare derived ones with."""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.analyses.architecture.built_models import built

from tunec.schemas.models.architecture import Architecture

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

Parameters = dict[str, tuple[int, ...]]


def derived_parameters(architecture: Architecture) -> Parameters:
    """Every parameter by its full name, from the module tree."""
    found: Parameters = {}
    for module in architecture.modules:
        names = list(module.names())
        assert len(names) == module.copies, module
        for name in names:
            if module.kind == "parameter":
                found[name] = module.shape
                continue
            found[f"{name}.weight"] = module.shape
            if module.bias:
                found[f"{name}.bias"] = (module.bias,)
    return found


def real_parameters(model: Any) -> Parameters:
    """Every parameter of a real model, tied ones once, GPT-2's `Conv1D` the other way round.

    A tied one has the name of what it is tied to, also where the class names its head first.
    """
    from transformers.pytorch_utils import Conv1D

    modules, tied = dict(model.named_modules()), getattr(model, "all_tied_weights_keys", None) or {}
    found: Parameters = {}
    for name, parameter in model.named_parameters():
        owner, _, leaf = name.rpartition(".")
        shape = tuple(parameter.shape)
        turned = isinstance(modules[owner], Conv1D) and leaf == "weight"
        found[tied.get(name, name)] = shape[::-1] if turned else shape
    return found


@pytest.fixture(scope="session")
def build() -> Callable[[Mapping[str, Any], str], Any]:
    """Build the real model of a config on the meta device."""
    return built


@pytest.fixture(scope="session")
def agree() -> Callable[[Architecture, Any], None]:
    """Assert that a derived architecture is the real model, name by name and shape by shape."""

    def check(architecture: Architecture, model: Any) -> None:
        derived, real = derived_parameters(architecture), real_parameters(model)
        missing = {name: real[name] for name in real.keys() - derived.keys()}
        extra = {name: derived[name] for name in derived.keys() - real.keys()}
        assert not missing, sorted(missing.items())[:10]
        assert not extra, sorted(extra.items())[:10]
        wrong = {name: (derived[name], real[name]) for name in real if derived[name] != real[name]}
        assert not wrong, sorted(wrong.items())[:10]
        assert architecture.parameters == sum(p.numel() for p in model.parameters())
        fixed = {name for m in architecture.modules if m.fixed for name in m.names()}
        frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
        assert fixed == {name.removesuffix(".weight") for name in frozen}

    return check


@pytest.fixture(scope="session")
def census() -> Callable[[Architecture], Counter[tuple[str, tuple[int, ...]]]]:
    """Count the parameters of equal name and shape, numbers in names written `{}`."""

    def count(architecture: Architecture) -> Counter[tuple[str, tuple[int, ...]]]:
        found = derived_parameters(architecture)
        return Counter((re.sub(r"(?<=\.)\d+(?=\.|$)", "{}", name), found[name]) for name in found)

    return count
