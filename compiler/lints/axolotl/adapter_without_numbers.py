"""An adapter without its rank or its alpha."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Severity
from tunec.compiler.lints.fragments import is_fragment
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_USUAL: Final = {"lora_r": 16, "lora_alpha": 32}
_NUMBERS: Final = ("lora_r", "lora_alpha")
_TARGETS: Final = ("lora_target_modules", "lora_target_linear", "lora_target_parameters")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("axolotl"):
        at = document.get("adapter")
        if document.is_view or at is None or at.value not in ("lora", "qlora"):
            continue
        if document.value("lora_model_dir"):
            continue  # the adapter that is loaded brings its own
        is_left_out = is_fragment(document) and not any(map(document.get, _NUMBERS + _TARGETS))
        severity: Severity | None = "warning" if is_left_out else None
        lost = [key for key in _NUMBERS if document.value(key) is None]
        lost = [key for key in lost if key not in document.unknown]
        if lost:
            yield Finding(
                f"adapter {at.value} without {' and '.join(lost)}",
                (at.label("has no numbers"),),
                ("Axolotl passes nothing on as None, and PEFT divides alpha by the rank",),
                "write " + ", ".join(f"{key}: {_USUAL[key]}" for key in lost),
                severity=severity,
            )
        if not any(map(document.value, _TARGETS)):
            yield Finding(
                f"adapter {at.value} without targets",
                (at.label("adapts nothing"),),
                ("an empty list of targets is passed on, which PEFT refuses",),
                "write lora_target_linear: true",
                severity=severity,
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
