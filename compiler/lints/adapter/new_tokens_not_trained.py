"""Tokens are added, and their embeddings are neither trained nor saved."""

import re
from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import ALL_LINEAR, Lora, last, loras
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.fragments import is_fragment
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_EMBEDDINGS = frozenset({"embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings"})
_WITHOUT = re.compile(
    r"(^|[/_-])(llama-[23][-b.]|llama-2|meta-llama-3|mistral-7b(-instruct)?-v0|mixtral-8x)"
)
"""Tokenizers of Meta and Mistral have no tokens of ChatML; fine-tunes by other names may."""
_BOTH_ENDS = (
    frozenset({"embed_tokens", "lm_head"}),
    frozenset({"embed_in", "embed_out"}),
    frozenset({"word_embeddings", "lm_head"}),
    frozenset({"embeddings", "lm_head"}),
)
"""axolotl 0.8.1 utils/lora_embeddings.py, 0.19.0 loaders/utils.py `get_linear_embedding_layers`: of
most models, of GPT-NeoX, of Falcon, and (0.18) of Nemotron-H."""
_KEYS = {
    "llamafactory": ("new_special_tokens", "add_tokens", "add_special_tokens"),
}


def _check(run: Run) -> Iterator[Finding]:
    for lora in loras(run):
        if lora.document.kind == "axolotl" and not _saves_both_ends(lora):
            yield from _refused(lora)
            yield from _changed(lora)
        at = _added(lora)
        if at is None or _is_trained(lora):
            continue
        is_factory = lora.document.kind == "llamafactory"
        if is_factory and _resizes(lora):
            continue  # it then trains both ends itself
        yield Finding(
            "tokens are added, and LoRA leaves their embeddings as they were initialised",
            (at.label("new rows, which nothing trains"),),
            ("a row that is never trained is noise in the input, and never predicted",),
            f"add {lora.key('modules_to_save')}: [embed_tokens, lm_head]",
            severity="warning",
        )


def _saves_both_ends(lora: Lora) -> bool:
    """Whether Axolotl finds the embedding and the head among what is saved whole."""
    saved = frozenset(lora.saved)
    return any(each <= saved for each in _BOTH_ENDS) or "lora_modules_to_save" in (
        lora.document.unknown
    )


def _refused(lora: Lora) -> Iterator[Finding]:
    """Axolotl refuses new tokens beside an adapter that does not save both ends."""
    at, adapter = lora.document.get("tokens"), lora.document.get("adapter")
    if at is not None and adapter is not None and at.value:
        yield Finding(
            f"tokens are added, and adapter {adapter.value} does not train their rows",
            (at.label("refused"), adapter.label("", primary=False)),
            ("`lora_modules_to_save` not properly set when adding new tokens",),
            "add lora_modules_to_save: [embed_tokens, lm_head]",
            severity="warning" if _may_be_saved(lora.document) else None,
            consequence="load",
        )


def _may_be_saved(document: Document) -> bool:
    """Whether a part of a file does not show what is saved."""
    return is_fragment(document) and document.get("lora_modules_to_save") is None


def _changed(lora: Lora) -> Iterator[Finding]:
    """Axolotl refuses a special token that the tokenizer has not, where its row is not trained."""
    base = str(lora.document.value("base_model") or "").lower()
    if not _WITHOUT.search(base):
        return
    more = lora.document.get("special_tokens.additional_special_tokens")
    words = more.value if more is not None and isinstance(more.value, list) else ()
    if more is not None and any(str(each).startswith("<|im_") for each in words):
        yield Finding(
            "special tokens are added, and LoRA leaves their embeddings as they were initialised",
            (more.label("new rows, which nothing trains"),),
            ("only those under names of their own, such as eos_token, are asked about",),
            "add lora_modules_to_save: [embed_tokens, lm_head]",
            severity="warning",
        )
    for key in ("eos_token", "bos_token", "unk_token"):
        at = lora.document.get(f"special_tokens.{key}")
        if at is not None and str(at.value).startswith("<|im_"):
            yield Finding(
                f"{at.value} is no token of {lora.document.value('base_model')}",
                (at.label("refused"),),
                ("Please set `lora_modules_to_save` when changing the special tokens",),
                "add lora_modules_to_save: [embed_tokens, lm_head]",
                consequence="load",
            )


def _added(lora: Lora) -> Place | None:
    keys = _KEYS.get(lora.document.kind, ())
    found = (lora.document.get(key) for key in keys)
    return next((at for at in found if at is not None and at.value), None)


def _is_trained(lora: Lora) -> bool:
    if lora.value("trainable_token_indices") or lora.document.value("lora_model_dir"):
        return True
    targets = lora.targets if isinstance(lora.targets, tuple) else ()
    if isinstance(lora.targets, str) and lora.targets != ALL_LINEAR:
        return True
    return any(last(each) in _EMBEDDINGS for each in (*lora.saved, *targets))


def _resizes(lora: Lora) -> bool:
    return not lora.saved


RULE = Rule(
    name="new-tokens-not-trained",
    severity="error",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "axolotl 0.8.1 utils/models.py, 0.13.2 and 0.19.0 loaders/utils.py "
            "`check_model_config`: not properly set when adding new tokens; loaders/tokenizer.py "
            "`load_tokenizer`: Please set lora_modules_to_save ... changing the special tokens"
        ),
        (
            "llamafactory 0.9.1 to 0.9.5 model/adapter.py `_setup_lora_tuning`: additional_target "
            "is filled in after resize_vocab only where it is absent; hparams/model_args.py turns "
            "resize_vocab on for new tokens"
        ),
    ),
    check=_check,
)
