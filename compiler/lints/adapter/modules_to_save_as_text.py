"""`modules_to_save` is one text, whose letters PEFT takes for names."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.adapter.lora import Lora, adapters
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PLAIN = ("peft", "glm4")
"""Kinds whose value is handed to PEFT as it is; the others split it at commas or refuse it."""


def _check(run: Run) -> Iterator[Finding]:
    for lora in adapters(run):
        at = lora.place("modules_to_save")
        if at is not None and isinstance(at.value, str) and at.value and _is_plain(lora):
            yield _finding(at, at.value)


def _is_plain(lora: Lora) -> bool:
    return lora.document.kind in _PLAIN


def _finding(at: Place, text: str) -> Finding:
    names = [each.strip() for each in text.split(",") if each.strip()]
    return Finding(
        f"modules_to_save is the text {text}, not a list",
        (at.label("each of its letters is a name"),),
        (
            (
                "a module is trained in full where its name ends with one of them: nearly all "
                "are, beside the adapters"
            ),
        ),
        f"write {names}",
        Fix((at.replaced(names),), "safe"),
    )


RULE = Rule(
    name="modules-to-save-as-text",
    severity="error",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 utils/other.py `_set_trainable`: any(key.endswith(target_key) "
            "for target_key in module_names); run: every layer of a small Llama is copied and "
            "trained"
        ),
    ),
    check=_check,
)
