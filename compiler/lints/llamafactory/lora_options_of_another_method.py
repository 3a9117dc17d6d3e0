"""An option for LoRA beside another kind of fine-tuning."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_ONLY_LORA: Final = ("use_rslora", "use_dora", "pissa_init", "loraplus_lr_ratio")
_FULL: Final = ("use_galore", "use_apollo", "use_badam")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        if document.is_view:
            continue
        kind = document.get("finetuning_type")
        word = kind.value if kind is not None else "lora"
        keys = _FULL if word == "lora" else _ONLY_LORA if word in ("full", "freeze") else ()
        for key in keys:
            at = document.get(key)
            if at is not None and at.value not in (None, False):
                yield _finding(key, at, kind, str(word))
        loaded = document.get("adapter_name_or_path")
        if word in ("full", "freeze") and loaded is not None and loaded.value:
            yield _finding("adapter_name_or_path", loaded, kind, str(word))


def _finding(key: str, at: Place, kind: Place | None, word: str) -> Finding:
    return Finding(
        f"{key} is refused with finetuning_type {word}",
        (at.label("refused"), *([kind.label("", primary=False)] if kind is not None else [])),
        (),
        "remove it, or change finetuning_type",
    )


RULE = Rule(
    name="lora-options-of-another-method",
    severity="error",
    consequence="parse",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py `__post_init__`: is only "
            "valid for LoRA training; Cannot use LoRA with GaLore, APOLLO or BAdam together; "
            "hparams/parser.py: Adapter is only valid for the LoRA method"
        ),
    ),
    check=_check,
)
