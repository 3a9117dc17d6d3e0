"""Where a family's models drop activations in training, and the config's keys for it."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tunec.schemas.models.architecture import NO_DROPOUT, Dropout


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
