"""An adapter without its rank or its alpha."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_USUAL: Final = {"lora_r": 16, "lora_alpha": 32}


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("axolotl"):
        at = document.get("adapter")
        if document.is_view or at is None or at.value not in ("lora", "qlora"):
            continue
        if document.value("lora_model_dir"):
            continue  # the adapter that is loaded brings its own
        lost = [key for key in ("lora_r", "lora_alpha") if document.value(key) is None]
        lost = [key for key in lost if key not in document.unknown]
        if lost:
            yield Finding(
                f"adapter {at.value} without {' and '.join(lost)}",
                (at.label("has no numbers"),),
                ("Axolotl passes nothing on as None, and PEFT divides alpha by the rank",),
                "write " + ", ".join(f"{key}: {_USUAL[key]}" for key in lost),
            )
        targets = ("lora_target_modules", "lora_target_linear", "lora_target_parameters")
        if not any(document.value(key) for key in targets):
            yield Finding(
                f"adapter {at.value} without targets",
                (at.label("adapts nothing"),),
                ("an empty list of targets is passed on, which PEFT refuses",),
                "write lora_target_linear: true",
            )


RULE = Rule(
    name="adapter-without-numbers",
    severity="error",
    consequence="init",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 to 0.19.0 loaders/adapter.py `load_lora`: r=cfg.lora_r, "
            "lora_alpha=cfg.lora_alpha, target_modules or []; peft 0.21.2, run: alpha None: "
            "TypeError; no targets: NoMatchingPeftModuleError"
        ),
    ),
    check=_check,
)
