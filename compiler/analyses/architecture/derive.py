"""Derivation of an architecture from a model's own config."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.analyses.architecture.classifiers import head_named, in_words, with_head
from tunec.compiler.analyses.architecture.dropout import dropout_of
from tunec.compiler.analyses.architecture.facts import (
    Facts,
    Fault,
    Findings,
    UnknownArchitecture,
    UnusableConfig,
)
from tunec.compiler.analyses.architecture.families import FAMILIES
from tunec.compiler.analyses.architecture.image_rules import with_images
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture
from tunec.schemas.models.derived_card import card_name, shipped

_FAMILY_KEYS: Final = ("model_type", "_class_name", "model_class")
"""Keys that name the family in configs of transformers, diffusers and SwissArmyTransformer."""
_ACTIVATION_KEYS: Final = ("activation_function", "hidden_act")
"""Keys of a config with the name of a feed-forward's activation."""
_READ_OFF: Final = {"llava": "pixtral"}
"""Families whose rule leaves a tower to cards, and that tower's family."""
_NOTHING: Final[Mapping[str, Any]] = {}


def derive(config: Mapping[str, Any], processor: Mapping[str, Any] = _NOTHING) -> Architecture:
    """Derive the architecture that a Hugging Face or diffusers `config.json` describes.

    `processor` is the model's `preprocessor_config.json`, for families whose image rule it sets.
    The module tree is the one that transformers 5.23 or diffusers 0.42 builds (or the model's own
    code, for families of `trust_remote_code`). Absent keys take the default of the config class;
    `Architecture.assumed` lists them. A family without a derivation has its card's architecture,
    where one that was read off its class comes with tunec.

    Raises `UnknownArchitecture` for a family with no derivation and `UnusableConfig` with every
    key that is missing or has the wrong type.
    """
    if head_named(config) is not None:
        return with_head(derive(in_words(config), processor), config)
    family = next((config[key] for key in _FAMILY_KEYS if config.get(key)), None)
    if not isinstance(family, str):
        found = "nothing" if family is None else repr(family)
        fault = Fault("model_type", "the name of a model family", found)
        raise UnusableConfig("", [fault])
    if family not in FAMILIES or _is_read_off(family, config):
        known = shipped(card_name(config))
        if known is None:
            raise UnknownArchitecture(family, tuple(FAMILIES))
        return with_images(known.architecture, config, processor)
    findings = Findings()
    architecture = FAMILIES[family](Facts(config, family, findings=findings, processing=processor))
    if findings.faults:
        raise UnusableConfig(family, findings.faults)
    assumed = tuple(dict.fromkeys(findings.assumed))
    named = next((config[key] for key in _ACTIVATION_KEYS if config.get(key)), "")
    dropout = dropout_of(family, config)
    return replace(architecture, assumed=assumed, dropout=dropout, activation=str(named))


def _is_read_off(family: str, config: Mapping[str, Any]) -> bool:
    """Whether cards have the tower that the rule of a family leaves to them."""
    tower = config.get("vision_config")
    named = tower.get("model_type") if isinstance(tower, Mapping) else None
    return named is not None and named == _READ_OFF.get(family)
