"""What a config leaves out is what the real config class takes."""

import dataclasses
import importlib
import inspect
from contextlib import suppress
from typing import Any

import pytest

from tunec.compiler.analyses.architecture import UnknownArchitecture, UnusableConfig, derive
from tunec.compiler.analyses.architecture.defaults import DEFAULTS
from tunec.compiler.analyses.architecture.facts import Facts
from tunec.schemas.models.catalogue import card, card_names

pytest.importorskip("transformers")
pytest.importorskip("diffusers")

MODELS = "transformers.models."
NESTED = {
    "qwen2_vl_text": ("qwen2_vl", "Qwen2VLTextConfig"),
    "qwen2_vl_vision": ("qwen2_vl", "Qwen2VLVisionConfig"),
    "qwen2_5_vl_text": ("qwen2_5_vl", "Qwen2_5_VLTextConfig"),
    "qwen2_5_vl_vision": ("qwen2_5_vl", "Qwen2_5_VLVisionConfig"),
    "qwen3_vl_text": ("qwen3_vl", "Qwen3VLTextConfig"),
    "qwen3_vl_vision": ("qwen3_vl", "Qwen3VLVisionConfig"),
}
ELSEWHERE = {
    "internlm2",
    "intern_vit_6b",
    "internvl_chat",
    "GotOcr2ImageProcessor",
    "Qwen2VLImageProcessor",
    "Qwen2VLImageProcessor.size",
}
"""Families whose source the table itself names."""


def config_class(family: str) -> Any:
    import diffusers
    import transformers

    if family in NESTED:
        module, name = NESTED[family]
        return getattr(importlib.import_module(f"{MODELS}{module}.configuration_{module}"), name)
    if family in transformers.CONFIG_MAPPING:
        return transformers.CONFIG_MAPPING[family]
    return getattr(diffusers, family, None)


def class_default(family: str, key: str) -> Any:
    """The class's own default, as a config.json holds it: a tuple is a list there."""
    found = declared_default(family, key)
    return list(found) if isinstance(found, tuple) else found


def declared_default(family: str, key: str) -> Any:
    real = config_class(family)
    if real.__module__.startswith("diffusers"):
        parameter = inspect.signature(real.__init__).parameters.get(key)
        return None if parameter is None else parameter.default
    spec = getattr(real, "sub_configs_defaults", {}).get(key)
    if spec is not None and spec.init_kwargs:
        return {"model_type": spec.model_type, **spec.init_kwargs}
    field = {field.name: field for field in dataclasses.fields(real)}.get(key)
    return None if field is None or field.default is dataclasses.MISSING else field.default


@pytest.mark.parametrize("family", sorted(DEFAULTS.keys() - ELSEWHERE))
def test_the_table_says_what_the_class_says(family):
    for key, value in DEFAULTS[family].items():
        real = class_default(family, key)
        if isinstance(value, dict):
            real = {name: real[name] for name in value}
        assert value == real, key


def test_the_processors_defaults_are_theirs():
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import (
        GotOcr2ImageProcessorPil,
    )

    table = DEFAULTS["GotOcr2ImageProcessor"]
    assert table == {key: getattr(GotOcr2ImageProcessorPil, key) for key in table}


CONFIGS = [
    *((name, card(name).config) for name in card_names()),
    *((family, {"model_type": family}) for family in sorted(DEFAULTS) if family.islower()),
]


@pytest.mark.parametrize("config", [pytest.param(config, id=name) for name, config in CONFIGS])
def test_every_key_that_is_read_has_the_classs_default(config, monkeypatch):
    read: set[tuple[str, str]] = set()
    original = Facts.get

    def noting(self: Facts, key: str) -> Any:
        read.add((self.family, key))
        return original(self, key)

    monkeypatch.setattr(Facts, "get", noting)
    with suppress(UnknownArchitecture, UnusableConfig):
        derive(config)
    for family, key in read:
        if config_class(family) is None or key in ("model_type", "architectures"):
            continue
        default = class_default(family, key)
        if default is not None and not isinstance(default, dict):
            assert DEFAULTS.get(family, {}).get(key) == default, (family, key)
