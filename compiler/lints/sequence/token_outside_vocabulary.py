"""A token that ends a text, or fills it up, and that the model's tokenizer does not have."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_QWEN: Final = frozenset(
    {
        *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>"),
        *("<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>"),
        *("<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>"),
        *("<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>"),
        *("<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>"),
        *("</tool_response>", "<think>", "</think>"),
    }
)
"""The tokens added to the vocabulary of Qwen2.5 and Qwen3, as hiyouga/LlamaFactory#7897 prints
them."""
_LLAMA_3: Final = frozenset(
    {
        *("<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>"),
        *("<|fim_suffix|>", "<|start_header_id|>", "<|end_header_id|>", "<|step_id|>"),
        *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>", "<|finetune_right_pad_id|>", "<|image|>"),
    }
)
"""meta-llama/llama3 0053e6b llama/tokenizer.py `special_tokens`, and those of 3.1 and 3.2."""
_CHATML: Final = frozenset({"<|im_start|>", "<|im_end|>"})
_SPLIT: Final = re.compile(r"\A[<\[].*[^\W\d_].*[>\]]\Z")
"""Letters with a bracket behind them. The tokenizers of Llama 3 and Qwen cut a text there before
they merge anything (meta-llama/llama3 0053e6b llama/tokenizer.py `pat_str`), so such a token is one
only where it was added."""
_RESERVED: Final = re.compile(r"\A<\|reserved_special_token_\d+\|>\Z")


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """What is known of a family's tokenizer."""

    cards: str
    """A pattern of the names of the catalogue's cards."""
    added: frozenset[str] | None
    """Every token with brackets; None: only `lacking` is known."""
    lacking: frozenset[str]
    ends: str
    """The token that ends an answer."""
    has_unknown: bool
    """Whether a token that is not there is looked up as `<unk>`."""


_FAMILIES: Final = (
    _Vocabulary(r"\Aqwen(2\.5|3)-", _QWEN, frozenset(), "<|im_end|>", has_unknown=False),
    _Vocabulary(r"\Allama-3", _LLAMA_3, frozenset(), "<|eot_id|>", has_unknown=False),
    _Vocabulary(r"\A(llama-2|tinyllama)-", None, _CHATML | {"[PAD]"}, "</s>", has_unknown=True),
    _Vocabulary(r"\A(mistral-7b|mixtral)-", None, _CHATML, "</s>", has_unknown=True),
)
_KEYS: Final = {"sft": ("eos_token", "pad_token"), "reward": ("eos_token", "pad_token")}


def _check(run: Run) -> Iterator[Finding]:
    vocabulary = _vocabulary(run)
    if vocabulary is None or run.model is None:
        return
    for document in run.of(*_KEYS):
        for key in _KEYS[document.kind] if not _brings_tokens(run, document) else ():
            at = document.get(key)
            if at is None or not isinstance(at.value, str) or not _is_lacking(vocabulary, at.value):
                continue
            is_lost = vocabulary.has_unknown and run.runs("trl<1.3") is True
            yield Finding(
                f"{at.value} is no token of {run.model.path}",
                (at.label("looked up as <unk>" if is_lost else "not in the vocabulary"),),
                (
                    "the tokenizer gives the number of <unk>, and nothing checks it"
                    if is_lost
                    else f"the specified `{key}` is not found in the vocabulary",
                ),
                f"write {vocabulary.ends}" if key == "eos_token" else "remove it",
                consequence="silent" if is_lost else None,
            )


def _vocabulary(run: Run) -> _Vocabulary | None:
    card = run.model.card if run.model is not None else None
    named = (each for each in _FAMILIES if card is not None and re.search(each.cards, card.name))
    return next(named, None)


def _brings_tokens(run: Run, document: Document) -> bool:
    """Whether another template, with its tokens, is laid over the model's; or a view repeats it.

    `--model` tells what a folder of one's own is built like, and not what its tokenizer has.
    """
    if document.is_view or document.get("chat_template_path") is not None:
        return True
    named = document.value("model_name_or_path")
    is_told = run.environment.model is not None or run.environment.model_name is not None
    own = run.resolve_model(named) if is_told and isinstance(named, str) else run.model
    if own is None or own.card is None or run.model is None or run.model.card is None:
        return True
    return own.card.name != run.model.card.name


def _is_lacking(vocabulary: _Vocabulary, token: str) -> bool:
    if vocabulary.added is None:
        return token in vocabulary.lacking
    if token in vocabulary.added or _RESERVED.match(token):
        return False
    return _SPLIT.match(token) is not None


RULE = Rule(
    name="token-outside-vocabulary",
    severity="error",
    consequence="init",
    consumers=("trl>=0.19",),
    sources=(
        (
            "trl 1.3.0 to 1.16.0 trainer/sft_trainer.py, reward_trainer.py `__init__`: the "
            "specified `eos_token` is not found in the vocabulary; 0.19.1 to 1.0.0: "
            "convert_tokens_to_ids gives None only where there is no unk_token"
        ),
        "meta-llama/llama3 0053e6b llama/tokenizer.py `Tokenizer`; hiyouga/LlamaFactory#7897",
        "jzhang38/TinyLlama#56: the vocabulary of Llama 2 has none of ChatML's tokens",
        (
            "mistral-common 1.5.4 data/tokenizer.model.v1, "
            "mistral_instruct_tokenizer_240323.model.v3: no <|im_end|>"
        ),
    ),
    check=_check,
)
