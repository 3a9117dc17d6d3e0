"""What a config leaves out is what the real config class takes."""

import ast
import dataclasses
import importlib
import inspect
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tunec.compiler.analyses.architecture import UnknownArchitecture, UnusableConfig, derive
from tunec.compiler.analyses.architecture.facts import DEFAULTS, Facts
from tunec.schemas.models.catalogue import card, card_names

pytest.importorskip("transformers")
pytest.importorskip("diffusers")

MODELS = "transformers.models."
NESTED = {
    "qwen2_vl_text": ("qwen2_vl", "Qwen2VLTextConfig"),
    "qwen2_vl_vision": ("qwen2_vl", "Qwen2VLVisionConfig"),
    "qwen2_5_vl_text": ("qwen2_5_vl", "Qwen2_5_VLTextConfig"),
    "qwen2_5_vl_vision": ("qwen2_5_vl", "Qwen2_5_VLVisionConfig"),
    "glm4v_vision": ("glm4v", "Glm4vVisionConfig"),
    "glm_ocr_vision": ("glm_ocr", "GlmOcrVisionConfig"),
    "glm4v_moe_vision": ("glm4v_moe", "Glm4vMoeVisionConfig"),
    "qwen3_vl_text": ("qwen3_vl", "Qwen3VLTextConfig"),
    "qwen3_vl_vision": ("qwen3_vl", "Qwen3VLVisionConfig"),
}
PROCESSORS = {
    "Gemma4ImageProcessor": "gemma4",
    "Gemma4UnifiedImageProcessor": "gemma4_unified",
    "Glm4vImageProcessor": "glm4v",
    "GotOcr2ImageProcessor": "got_ocr2",
    "Idefics2ImageProcessor": "idefics2",
    "Kimi_K25ImageProcessor": "kimi_k25",
    "Lfm2VlImageProcessor": "lfm2_vl",
    "Llama4ImageProcessor": "llama4",
    "MiniCPMV4_6ImageProcessor": "minicpmv4_6",
    "PaddleOCRVLImageProcessor": "paddleocr_vl",
    "PixtralImageProcessor": "pixtral",
    "Qwen2VLImageProcessor": "qwen2_vl",
}
"""Image processors and the family in whose folder each is."""
ELSEWHERE = {"internlm2", "intern_vit_6b", "internvl_chat"}
ELSEWHERE |= {*PROCESSORS, *(f"{name}.size" for name in PROCESSORS)}
"""Families whose source the table itself names, and processors, which are no configs."""


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


def attributes(processor: str) -> dict[str, Any]:
    """What a class says of itself, by its source: most cannot be imported without torchvision."""
    import transformers

    family = PROCESSORS[processor]
    source = Path(transformers.__path__[0], "models", family, f"image_processing_{family}.py")
    tree = ast.parse(source.read_text("utf-8"))
    found = next(c for c in tree.body if isinstance(c, ast.ClassDef) and c.name == processor)
    return {
        name.id: eval(ast.unparse(each.value))  # noqa: S307  constants of transformers' own
        for each in found.body
        if isinstance(each, ast.Assign)
        for name in each.targets
        if isinstance(name, ast.Name) and name.id in DEFAULTS[processor]
    }


@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_processors_defaults_are_theirs(processor):
    real = attributes(processor)
    assert real == DEFAULTS[processor]
    sizes = DEFAULTS.get(f"{processor}.size", {})
    assert sizes == {key: real["size"][key] for key in sizes}


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
