"""Derivation of an architecture from a model's own config."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tunec.compiler.analyses.architecture.classifiers import head_named, in_words, with_head
from tunec.compiler.analyses.architecture.facts import (
    Facts,
    Fault,
    Findings,
    UnknownArchitecture,
    UnusableConfig,
)
from tunec.compiler.analyses.architecture.families import FAMILIES
from tunec.compiler.analyses.architecture.image_rules import with_images
from tunec.compiler.analyses.architecture.layer_classes import layer_classes
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import NO_DROPOUT, Architecture, Dropout
from tunec.schemas.models.derived_card import card_name, shipped


class _Key(NamedTuple):
    name: str
    usual: float
    """The config class's own default."""


class _Keys(NamedTuple):
    states: _Key | None
    scores: _Key
    inner: _Key | None = None


_GPT: Final = _Keys(_Key("resid_pdrop", 0.1), _Key("attn_pdrop", 0.1))
_GPTJ: Final = _Keys(_Key("resid_pdrop", 0.0), _Key("attn_pdrop", 0.0))
_SCORES: Final = _Key("attention_dropout", 0.0)
_HIDDEN: Final = _Keys(_Key("hidden_dropout", 0.0), _SCORES)
_T5: Final = _Keys(*[_Key("dropout_rate", 0.1)] * 3)
_BART: Final = _Keys(_Key("dropout", 0.1), _SCORES, _Key("activation_dropout", 0.0))
_BART_SCORED: Final = _BART._replace(scores=_Key("attention_dropout", 0.1))
_BERT: Final = _Keys(_Key("hidden_dropout_prob", 0.1), _Key("attention_probs_dropout_prob", 0.1))

KEYS: Final[Mapping[str, _Keys]] = {
    "gpt2": _GPT,
    "gpt_bigcode": _GPT,
    "gptj": _GPTJ,
    "codegen": _GPTJ,
    "gpt_neo": _Keys(_Key("resid_dropout", 0.0), _SCORES),
    "gpt_neox": _HIDDEN,
    "bloom": _HIDDEN,
    "falcon": _HIDDEN,
    "opt": _Keys(_Key("dropout", 0.1), _SCORES),
    "phi": _Keys(_Key("resid_pdrop", 0.0), _SCORES),
    "phi3": _Keys(_Key("resid_pdrop", 0.0), _SCORES),
    "starcoder2": _Keys(_Key("residual_dropout", 0.0), _SCORES),
    "t5": _T5,
    "mt5": _T5,
    "umt5": _T5,
    **dict.fromkeys(("bart", "mbart", "pegasus", "marian"), _BART),
    **dict.fromkeys(("blenderbot", "blenderbot-small"), _BART),
    **dict.fromkeys(("m2m_100", "plbart"), _BART_SCORED),
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
}
"""By `model_type`: transformers 5.23, `configuration_*.py` of each."""
_OTHERS: Final = _Keys(None, _SCORES)


def dropout_of(family: str, config: Mapping[str, Any]) -> Dropout:
    """Read what a config drops; a key that is no number counts as none."""
    keys = KEYS.get(family, _OTHERS)
    found = Dropout(*(_is_asked(config, key) for key in keys))
    return found if found != NO_DROPOUT else NO_DROPOUT


def _is_asked(config: Mapping[str, Any], key: _Key | None) -> bool:
    if key is None:
        return False
    value = config.get(key.name, key.usual)
    return isinstance(value, int | float) and value > 0


_FAMILY_KEYS: Final = ("model_type", "_class_name", "model_class")
"""Keys that name the family in configs of transformers, diffusers and SwissArmyTransformer."""
EAGER_FAMILIES: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("bloom", "codegen", "mpt"), False),
    **dict.fromkeys(("gptj", "gpt_neo"), True),
}
"""Families whose class refuses to be loaded with `sdpa`, with whether it takes FlashAttention 2:
transformers 5.23 modeling_utils.py `_sdpa_can_dispatch`, `_flash_attn_can_dispatch`."""
_ACTIVATION_KEYS: Final = ("activation_function", "hidden_act", "feed_forward_proj")
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
    return replace(
        architecture,
        assumed=assumed,
        dropout=dropout,
        activation=str(named),
        layer_classes=layer_classes(config),
        eager=architecture.eager or family in EAGER_FAMILIES,
        flash=EAGER_FAMILIES.get(family, False),
    )


def _is_read_off(family: str, config: Mapping[str, Any]) -> bool:
    """Whether cards have what the rule of a family leaves to them: a tower, or clamped queries."""
    if family == "olmo":  # transformers 5.23 `OlmoAttention.forward` keeps what it clamps
        return config.get("clip_qkv") is not None
    tower = config.get("vision_config")
    named = tower.get("model_type") if isinstance(tower, Mapping) else None
    return named is not None and named == _READ_OFF.get(family)
