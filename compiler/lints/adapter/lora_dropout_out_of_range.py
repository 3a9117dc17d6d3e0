"""LoRA's dropout is no probability, or drops everything."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.adapter.lora import loras, number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for lora in loras(run):
        at = lora.place("lora_dropout")
        share = None if at is None else number(at.value)
        if at is None or share is None or 0 <= share < 1:
            continue
        if share < 0:
            message, consequence = f"lora_dropout is {at.value}, and drops nothing", "silent"
        elif share == 1:
            message, consequence = "lora_dropout drops every input: nothing is trained", "silent"
        else:
            message, consequence = f"lora_dropout is {at.value}, and no probability", "init"
        percent = share / 100
        yield Finding(
            message,
            (at.label("a share from 0 to 1"),),
            (),
            f"write {percent:g}" if share > 1 else "write 0.05 or 0",
            Fix((at.replaced(percent),), "unsafe") if share > 1 else None,
            consequence="init" if consequence == "init" else "silent",
            severity="warning" if share < 0 else None,
        )


RULE = Rule(
    name="lora-dropout-out-of-range",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/lora/layer.py `LoraLayer.update_layer`: Dropout if more "
            "than 0; torch 2.13.0 nn/modules/dropout.py: has to be between 0 and 1"
        ),
    ),
    check=_check,
)
