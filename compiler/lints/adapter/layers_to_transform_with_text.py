"""Layers are chosen beside a target that is a string."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.adapter.lora import adapters
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_REFUSING: Final = ("LoRA", "AdaLoRA", "FourierFT", "HRA")
"""Others take the expression, and pass over the layers."""


def _check(run: Run) -> Iterator[Finding]:
    for lora in adapters(run):
        target = lora.place("target_modules")
        if target is None or not isinstance(target.value, str):
            continue
        if lora.document.kind == "llamafactory" or lora.method not in _REFUSING:
            continue
        for name in ("layers_to_transform", "layers_pattern"):
            at = lora.place(name)
            if at is not None:
                yield Finding(
                    f"{name} cannot stand beside target_modules {target.value}",
                    (at.label("refused"), target.label("a string", primary=False)),
                    ("an expression, and all-linear too, has to say the layers itself",),
                    "write target_modules as a list of names",
                )


RULE = Rule(
    name="layers-to-transform-with-text",
    severity="error",
    consequence="parse",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/lora/config.py `LoraConfig.__post_init__`: "
            "`layers_to_transform` cannot be used when `target_modules` is a str; 0.21.2 "
            "tuners/adalora/config.py, fourierft/config.py, hra/config.py"
        ),
    ),
    check=_check,
)
