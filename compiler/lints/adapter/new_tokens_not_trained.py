"""Tokens are added, and their embeddings are neither trained nor saved."""

import re
from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import ALL_LINEAR, Lora, last, loras
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_EMBEDDINGS = frozenset({"embed_tokens", "wte", "word_embeddings", "embed_in", "tok_embeddings"})
_WITHOUT = re.compile(
    r"(^|[/_-])(llama-[23][-b.]|llama-2|meta-llama-3|mistral-7b(-instruct)?-v0|mixtral-8x)"
)
"""Tokenizers of Meta and Mistral have no tokens of ChatML; fine-tunes by other names may."""
_KEYS = {
    "axolotl": ("tokens",),
    "llamafactory": ("new_special_tokens", "add_tokens", "add_special_tokens"),
}


def _check(run: Run) -> Iterator[Finding]:
    for lora in loras(run):
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
        )


def _changed(lora: Lora) -> Iterator[Finding]:
    """Axolotl refuses a special token that the tokenizer has not, where its row is not trained."""
    base = str(lora.document.value("base_model") or "").lower()
    if lora.document.kind != "axolotl" or _is_trained(lora) or not _WITHOUT.search(base):
        return
    for key in ("eos_token", "bos_token", "unk_token"):
        at = lora.document.get(f"special_tokens.{key}")
        if at is not None and str(at.value).startswith("<|im_"):
            yield Finding(
                f"{at.value} is no token of {lora.document.value('base_model')}",
                (at.label("refused"),),
                ("Please set `lora_modules_to_save` when changing the special tokens",),
                "add lora_modules_to_save: [embed_tokens, lm_head]",
                consequence="load",
                severity="error",
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
    severity="warning",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "axolotl 0.8.1 to 0.19.0 loaders/tokenizer.py: `tokens` are added, and only changed "
            "special_tokens are asked for lora_modules_to_save"
        ),
        (
            "llamafactory 0.9.1 to 0.9.5 model/adapter.py `_setup_lora_tuning`: "
            "additional_target is "
            "filled in after resize_vocab only where it is absent; hparams/model_args.py turns "
            "resize_vocab on for new tokens"
        ),
    ),
    check=_check,
)
