"""LoRA's keys are written, and nothing asks for LoRA: the whole model is trained."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.kinds import own_keys
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = {
    "sft": (
        *("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save"),
        *("use_dora", "use_rslora", "lora_task_type", "lora_target_parameters"),
    ),
    "axolotl": (
        "lora_r",
        "lora_alpha",
        "lora_target_modules",
        "lora_target_linear",
        "peft_use_dora",
    ),
    "llamafactory": ("lora_rank", "lora_alpha", "lora_target", "lora_dropout", "additional_target"),
    "minicpm-v": ("lora_r", "lora_alpha", "lora_target_modules"),
}
_SWITCH: Final = {
    "sft": ("use_peft", "use_peft: true"),
    "axolotl": ("adapter", "adapter: lora"),
    "llamafactory": ("finetuning_type", "finetuning_type: lora"),
    "minicpm-v": ("use_lora", "use_lora: true"),
}


def _check(run: Run) -> Iterator[Finding]:
    for document in run.documents:
        dialect = "sft" if document.kind in ("dpo", "grpo") else document.kind
        if document.is_view or dialect not in _KEYS or document.unknown:
            continue
        if dialect == "sft" and _has_own_switch(document):
            continue
        yield from _of(document, dialect)


def _has_own_switch(document: Document) -> bool:
    """Whether a script has a switch of its own.

    MiniCPM-V: `use_lora`; LLaVA: `lora_enable`; PEFT's examples: `use_peft_lora`.
    """
    own = own_keys(document.target, document.file, document.root.fields or ())
    return any("lora" in key or "peft" in key for key in own)


def _of(document: Document, dialect: str) -> Iterator[Finding]:
    switch, help_ = _SWITCH[dialect]
    said = document.get(switch)
    if dialect == "llamafactory":
        if said is None or said.value not in ("full", "freeze"):
            return
    elif said is not None and (said.value or said.value is False):
        return  # on, or turned off in so many words
    every = [document.get(key) for key in _KEYS[dialect]]
    found = [each for each in every if each is not None and each.value not in (None, "", [], False)]
    if len(found) < (1 if dialect == "sft" else 2):
        return
    is_leftover = dialect in ("llamafactory", "axolotl")  # often kept from a template of LoRA
    yield Finding(
        f"{quoted((each.path for each in found), 'and')} do nothing: no adapter is asked for",
        (
            *(each.label("ignored", primary=at == 0) for at, each in enumerate(found)),
            *([said.label("", primary=False)] if said is not None else []),
        ),
        ("the whole model is trained: with Adam about 16 bytes for each parameter",),
        f"write {help_}, or remove them",
        severity="warning" if is_leftover else None,
    )


RULE = Rule(
    name="lora-keys-without-adapter",
    severity="error",
    consequence="silent",
    consumers=("peft",),
    sources=(
        "trl 0.8.6 to 1.16.0 trainer/utils.py `get_peft_config`: None unless use_peft",
        "axolotl 0.8.1 to 0.19.0 loaders/adapter.py `load_adapter`: nothing without adapter",
        "llamafactory 0.9.1 to 0.9.5 model/adapter.py `init_adapter`: by finetuning_type",
    ),
    check=_check,
)
