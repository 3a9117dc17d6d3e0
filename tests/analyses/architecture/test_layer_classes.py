"""FSDP finds the layer classes of every model that sees: those it lists, or those it is told."""

from collections.abc import Mapping
from typing import Any

import pytest

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.analyses.architecture.layer_classes import layer_classes
from tunec.schemas.models.catalogue import card, card_names

transformers = pytest.importorskip("transformers")


def one_of_each_combination() -> dict[str, Mapping[str, Any]]:
    """The config of one card for each combination of families of parts, by their names."""
    found: dict[str, Mapping[str, Any]] = {}
    for name in card_names():
        config = card(name).config
        if isinstance(config.get("vision_config"), Mapping):
            parts = [config.get(f"{part}_config") or {} for part in ("text", "vision", "audio")]
            families = [each.get("model_type", "") for each in (config, *parts)]
            found.setdefault("+".join(families), config)
    return found


CONFIGS = one_of_each_combination()


@pytest.mark.parametrize("name", CONFIGS)
def test_every_class_that_is_wrapped_is_there(name, build):
    config = CONFIGS[name]
    if config["model_type"] not in transformers.CONFIG_MAPPING:
        pytest.skip("transformers has no class for it")
    try:
        model = build(config, "vision-language")
    except ImportError as missing:
        pytest.skip(str(missing))
    present = {type(module).__name__ for module in model.modules()}
    told = derive(config).layer_classes
    assert set(told) <= present
    is_listed = set(model._no_split_modules) <= present
    assert bool(told) == (not is_listed or _is_listed_later(config))


def _is_listed_later(config: Mapping[str, Any]) -> bool:
    """Whether releases before this one list none of its layers, or others.

    transformers 4.57.6, asked in the same way: the lists are joined from 5.1 on, and SmolVLM's,
    Idefics2's and Idefics3's name a decoder layer of their own until 5.7 at least.
    """
    later = ("idefics2", "idefics3", "internvl", "mistral3", "smolvlm")
    return config["model_type"] in later or config["vision_config"].get("model_type") == "pixtral"


ALONE = {
    "esm": card("esm2-8m").config,
    **{
        name: card(name).config["text_config"]
        for name in ("gemma-4-e2b", "qwen3.5-0.8b", "qwen3.5-35b-a3b")
    },
}


@pytest.mark.parametrize("name", ALONE)
def test_a_model_of_text_alone_is_told_of_where_its_list_names_a_tower(name, build):
    config = dict(ALONE[name])
    model = build(config, "encoder" if name == "esm" else "causal-lm")
    present = {type(module).__name__ for module in model.modules()}
    told = layer_classes(config)
    assert told
    assert set(told) <= present
    assert not set(model._no_split_modules) <= present
