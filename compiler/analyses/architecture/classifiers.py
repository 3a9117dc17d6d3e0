"""Heads that classify sequences or tokens, on the body of a causal or masked language model.

Read from transformers 5.23.0: `modeling_layers.py`, `GenericForSequenceClassification` and
`GenericForTokenClassification`; `models/bert/modeling_bert.py`, `BertForSequenceClassification` and
`BertForTokenClassification`, and the same classes of the other families.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.analyses.architecture.facts import Fault, UnusableConfig
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, ClassifierKind, Module
from tunec.schemas.spec_sections import Task

SUFFIXES: Final[Mapping[str, ClassifierKind]] = {
    "ForSequenceClassification": "sequence-classifier",
    "ForTokenClassification": "token-classifier",
}
"""Suffixes of the names of such classes."""
_USUAL: Final = 2
"""The number of labels if a config names none (transformers `PretrainedConfig.num_labels`)."""
_LABELS: Final = ("num_labels", "id2label", "label2id")
_CLASS: Final = re.compile(r"(For[A-Z]\w*|LMHeadModel|Model)$")


class _Layer(Struct, frozen=True):
    """A module of a head, which follows the body."""

    path: str
    """A path that begins with `*.` is inside the body."""
    wide: bool = True
    """Whether its outputs have the hidden width; otherwise there is one for each label."""
    bias: bool = True
    norm: bool = False


_POOLER: Final = _Layer("pooler.dense")
_CLASSIFIER: Final = _Layer("classifier", wide=False)
_MODERN: Final = (
    _Layer("head.dense", bias=False),
    _Layer("head.norm", bias=False, norm=True),
    _CLASSIFIER,
)
_ROBERTA: Final = (_Layer("classifier.dense"), _Layer("classifier.out_proj", wide=False))
_SEQUENCE: Final[Mapping[str, tuple[_Layer, ...]]] = {
    "bert": (_Layer("*.pooler.dense"), _CLASSIFIER),
    **dict.fromkeys(("deberta", "deberta-v2"), (_POOLER, _CLASSIFIER)),
    "distilbert": (_Layer("pre_classifier"), _CLASSIFIER),
    "modernbert": _MODERN,
    **dict.fromkeys(("camembert", "electra", "esm", "mpnet", "roberta", "xlm-roberta"), _ROBERTA),
}
_TOKEN: Final[Mapping[str, tuple[_Layer, ...]]] = {
    **dict.fromkeys(_SEQUENCE, (_CLASSIFIER,)),
    "modernbert": _MODERN,
}
_HEAD_FIRST: Final = frozenset({"camembert", "xlm-roberta"})
"""Families whose classifiers own their head's parameters before the body's."""
_SCORE: Final = (_Layer("score", wide=False, bias=False),)
_SCORE_BIASED: Final = (_Layer("score", wide=False),)
_TOKENS_SCORED: Final = frozenset(
    {
        *("arcee", "deepseek_v3", "exaone4", "gemma", "gemma2", "glm", "glm4", "gpt_oss"),
        *("helium", "llama", "mistral", "mixtral", "phi", "phi3", "qwen2", "qwen2_moe"),
        *("qwen3", "qwen3_moe", "qwen3_next", "seed_oss", "smollm3", "stablelm", "starcoder2"),
    }
)
_TOKENS_CLASSIFIED: Final = frozenset(
    {"bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "mpt"}
)
"""Of these families, those whose head for tokens is a module of another name."""
_SEQUENCES_SCORED: Final = (
    _TOKENS_SCORED
    | _TOKENS_CLASSIFIED
    | {"deepseek_v2", "gemma3_text", "gptj", "hunyuan_v1_dense", "hunyuan_v1_moe", "jamba"}
    | {"olmo", "olmo2", "olmo3", "opt", "phimoe"}
)
"""Families of causal models that have such classes; each head is one projection."""


def head_named(config: Mapping[str, Any]) -> ClassifierKind | None:
    """What a config's class classifies; None if it does not classify."""
    named = _named(config)
    return next((kind for end, kind in SUFFIXES.items() if named.endswith(end)), None)


def in_words(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the same body with a language model's head, as in its card."""
    is_encoder = config.get("model_type") in _SEQUENCE
    named = _CLASS.sub("ForMaskedLM" if is_encoder else "ForCausalLM", _named(config))
    facts = {key: value for key, value in config.items() if key not in _LABELS}
    return {**facts, "architectures": [named]}


def for_task(config: Mapping[str, Any], task: Task | None) -> Mapping[str, Any]:
    """The config of the class that a task needs, with its labels."""
    if task is None:
        return config
    kind, labels = task.asked
    end = next(end for end, each in SUFFIXES.items() if each == kind)
    facts = {key: value for key, value in config.items() if key not in _LABELS}
    return {**facts, "architectures": [_CLASS.sub("", _named(config)) + end], "num_labels": labels}


def with_head(words: Architecture, config: Mapping[str, Any]) -> Architecture:
    """Replace a language model's head by the head that a config names.

    Raises `UnusableConfig` for a family whose head is not known, or if the number of labels is
    invalid.
    """
    kind = head_named(config)
    layers = _layers(words.family, kind) if kind is not None else ()
    if kind is None or not layers:
        fault = Fault("architectures", "a class whose head is known", repr(_named(config)))
        raise UnusableConfig(words.family, [fault])
    labels = _labels(words.family, config)
    body = words.embedding.partition(".")[0]
    inside = tuple(each for each in words.modules if each.path.startswith(f"{body}."))
    made = tuple(_module(each, body, words.hidden, labels) for each in layers)
    return replace(
        words,
        kind=kind,
        modules=(*made, *inside) if words.family in _HEAD_FIRST else (*inside, *made),
        vocab=labels,
        tied=False,
        logit_softcap=False,
        head=made[-1].path,
        new=tuple(each.path for each in made if not each.path.startswith(f"{body}.")),
    )


def has_head(family: str, kind: ClassifierKind) -> bool:
    """Whether the head of a family's classifiers is known."""
    return bool(_layers(family, kind))


def has_biased_head(family: str, kind: ClassifierKind) -> bool:
    """Whether a family's head is known, and its last projection has a bias."""
    return any(each.bias for each in _layers(family, kind)[-1:])


def _layers(family: str, kind: ClassifierKind) -> tuple[_Layer, ...]:
    if kind == "sequence-classifier":
        return _SCORE if family in _SEQUENCES_SCORED else _SEQUENCE.get(family, ())
    if family in _TOKENS_SCORED:
        return _SCORE_BIASED
    return (_CLASSIFIER,) if family in _TOKENS_CLASSIFIED else _TOKEN.get(family, ())


def _labels(family: str, config: Mapping[str, Any]) -> int:
    names = config.get("id2label")
    count = len(names) if isinstance(names, Mapping) else config.get("num_labels", _USUAL)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UnusableConfig(family, [Fault("num_labels", "a number of labels", repr(count))])
    return count


def _module(layer: _Layer, body: str, hidden: int, labels: int) -> Module:
    path = layer.path.replace("*", body)
    width = hidden if layer.wide else labels
    if layer.norm:
        return Module(path, "norm", (hidden,), "text", hidden * layer.bias)
    return Module(path, "linear", (width, hidden), "text", width * layer.bias)


def _named(config: Mapping[str, Any]) -> str:
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list | tuple) and named else ""
