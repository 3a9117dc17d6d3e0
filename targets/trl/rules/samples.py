"""How TRL's trainers build sequences from samples."""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, also
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.targets.trl.answer_marks import marks_answers

_UNMARKED: Final = re.compile(
    r"/(meta-)?llama-[23]|/qwen[23]|/mistral-|/mixtral-|/gemma-|/phi-[34]|/deepseek-|/zephyr-"
)
"""Chat models whose own templates have no `{% generation %}` (huggingface/trl#4879)."""


@rule("warning", "init", consumers=("trl",), reads=("sft:assistant_only_loss",))
def assistant_mask_empty(run: LintContext) -> Iterator[Finding]:
    """The loss counts the assistant's tokens only, and the chat template does not mark them."""
    for document in run.of("sft"):
        at = where(document, "assistant_only_loss")
        model = document.get("model_name_or_path") or run.said("model", "model_name_or_path")
        is_own = any(document.get(key) for key in ("chat_template_path", "chat_template"))
        if at is None or model is None or is_own or document.is_view:
            continue
        if _is_unmarked(run, str(model.value)):
            yield Finding(
                f"the chat template of {model.value} does not mark the assistant's tokens",
                (at.label("finds none"), model.label("", primary=False)),
                ("the mask covers the text between generation and endgeneration",),
                "set chat_template_path to a template with the marks",
            )


def _is_unmarked(run: LintContext, model: str) -> bool:
    """Whether trl finds no answers; before 1.1 it had no variants of templates, with marks."""
    if run.runs("trl>=0.19,<1.1"):
        return _UNMARKED.search(f"/{model.lower().rpartition('/')[2]}") is not None
    release = run.releases.get("trl")
    known = () if release is None or not run.runs("trl>=1.1") else release.candidates
    return bool(known) and all(marks_answers(model, each) is False for each in known)


@rule("error", "init", consumers=("trl>=0.20",), reads=("sft:packing",))
def packing_without_length(run: LintContext) -> Iterator[Finding]:
    """Packing needs a length, and `max_length` is null."""
    for document in run.of("sft"):
        packing, length = document.get("packing"), document.get("max_length")
        if packing is None or packing.value is not True or length is None:
            continue
        if length.value is None:
            yield Finding(
                "packing has no max_length to fill",
                (length.label("refused"), packing.label("", primary=False)),
                (),
                "write max_length: 2048",
            )


@rule("error", "init", consumers=("trl>=1.3",), reads=("sft:padding_free",))
def padding_free_not_cut(run: LintContext) -> Iterator[Finding]:
    """Batches are flattened without packing, so that nothing enforces the set length."""
    for document in run.of("sft"):
        free, packing = document.get("padding_free"), document.value("packing", False)
        if free is None or free.value is not True or packing or document.is_view:
            continue
        if document.hides("max_length", "packing"):
            continue
        length = document.get("max_length")
        if length is not None and length.value is None:
            continue
        said = f"{length.value}" if length is not None else "1024 by default"
        yield Finding(
            f"padding_free without packing does not enforce max_length, which is {said}",
            (free.label("refused"), *also(length)),
            (),
            "write packing: true, or max_length: null",
        )


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
"""The tokens added to the vocabulary of Qwen2.5 and Qwen3, as listed in
hiyouga/LlamaFactory#7897."""
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
"""Letters between brackets. The tokenizers of Llama 3 and Qwen split a text after the bracket
before they merge (meta-llama/llama3 0053e6b llama/tokenizer.py `pat_str`), so such a text is one
token only if it was added."""
_RESERVED: Final = re.compile(r"\A<\|reserved_special_token_\d+\|>\Z")


class _Vocabulary(Struct, frozen=True):
    """What is known about a family's tokenizer."""

    cards: str
    """A pattern of the names of the catalogue's cards."""
    added: frozenset[str] | None
    """All tokens with brackets; None: only `lacking` is known."""
    lacking: frozenset[str]
    ends: str
    """The token that ends an answer."""
    has_unknown: bool
    """Whether an unknown token is looked up as `<unk>`."""


_FAMILIES: Final = (
    _Vocabulary(r"\Aqwen(2\.5|3)-", _QWEN, frozenset(), "<|im_end|>", has_unknown=False),
    _Vocabulary(r"\Allama-3", _LLAMA_3, frozenset(), "<|eot_id|>", has_unknown=False),
    _Vocabulary(r"\A(llama-2|tinyllama)-", None, _CHATML | {"[PAD]"}, "</s>", has_unknown=True),
    _Vocabulary(r"\A(mistral-7b|mixtral)-", None, _CHATML, "</s>", has_unknown=True),
)
_KEYS: Final = {"sft": ("eos_token", "pad_token"), "reward": ("eos_token", "pad_token")}


@rule("error", "init", consumers=("trl>=0.19",), reads=keys("sft|reward", "eos_token", "pad_token"))
def token_outside_vocabulary(run: LintContext) -> Iterator[Finding]:
    """An end or padding token that the model's tokenizer does not have."""
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


def _vocabulary(run: LintContext) -> _Vocabulary | None:
    card = run.model.card if run.model is not None else None
    named = (each for each in _FAMILIES if card is not None and re.search(each.cards, card.name))
    return next(named, None)


def _brings_tokens(run: LintContext, document: Document) -> bool:
    """Whether the tokenizer may have tokens besides the model's, or a view repeats the file.

    `--model` describes the architecture of a local folder, not its tokenizer.
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
