"""Every card and every family against the class that transformers or diffusers builds."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.cards import family, one_of_each_family, require_tower
from tests.tables import table

from tunec.compiler.analyses.architecture import derive
from tunec.schemas.models.catalogue import card, card_names
from tunec.schemas.models.known_since import whole_heads_since

pytest.importorskip("transformers")
pytest.importorskip("diffusers")

REMOTE = {"chatglm", "minicpmv", "internvl_chat", "VisualGLMModel"}
"""Families that their own repository's code builds."""


def has_parted_heads(name: str) -> bool:
    """Whether the newest transformers refuses the card's config, as E0608 says."""
    config = card(name).config
    is_asked = bool(whole_heads_since(family(name)) and config.get("num_attention_heads"))
    return is_asked and config["hidden_size"] % config["num_attention_heads"] != 0


PARTED = [name for name in card_names() if has_parted_heads(name)]


def native_cards() -> list[str]:
    return [name for name in card_names() if family(name) not in REMOTE and name not in PARTED]


@pytest.mark.parametrize("name", one_of_each_family(native_cards()))
def test_a_card_is_the_real_model(name, build, agree):
    require_tower(name)
    found = card(name)
    architecture = derive(found.config, found.processor)
    agree(architecture, build(found.config, architecture.kind))


@pytest.mark.parametrize("name", PARTED)
def test_a_class_refuses_the_config_that_a_spec_is_refused_for(name, build):
    from huggingface_hub.errors import StrictDataclassError

    with pytest.raises(StrictDataclassError, match="is not a multiple of the number of attention"):
        build(card(name).config, "causal-lm")


def components() -> Iterator[tuple[str, Mapping[str, Any]]]:
    seen = []
    for name in card_names():
        for component in card(name).components:
            if component.config and component.config not in seen:
                seen.append(component.config)
                yield f"{name} {component.part} {len(seen)}", component.config


@pytest.mark.parametrize("config", [pytest.param(c, id=name) for name, c in components()])
def test_a_component_is_the_real_model(config, build, agree):
    architecture = derive(config)
    assert architecture.by_part.keys() == {"vae" if "_class_name" in config else "text_encoder"}
    agree(architecture, build(config, architecture.kind))


TABLE = table(__file__)
VARIANTS: tuple[dict[str, Any], ...] = (
    *({"model_type": family} for family in TABLE["families"]),
    *TABLE["variants"],
)


@pytest.mark.parametrize(
    "config", [pytest.param(c, id=" ".join(map(str, c.values()))[:60]) for c in VARIANTS]
)
def test_a_variant_is_the_real_model(config, build, agree):
    architecture = derive(config)
    agree(architecture, build(config, architecture.kind))
