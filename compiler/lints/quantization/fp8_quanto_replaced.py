"""SimpleTuner trains a LoRA on several devices over fp8-quanto, and takes int8-quanto."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.quantization.base import processes
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    world = processes(run)
    for document in run.of("simpletuner"):
        place = document.get("base_model_precision")
        if place is None or place.value != "fp8-quanto" or world is None or world < 2:
            continue
        lora = document.value("model_type") == "lora"
        if not lora or document.value("lora_type", "standard") != "standard":
            continue
        yield Finding(
            f"fp8-quanto with a PEFT LoRA in {world} processes becomes int8-quanto",
            (place.label("replaced"),),
            ("SimpleTuner logs an error and goes on with int8-quanto",),
            "say int8-quanto, or use lora_type lycoris",
            Fix((place.replaced("int8-quanto"),), "safe"),
        )


RULE = Rule(
    name="fp8-quanto-replaced",
    severity="error",
    consequence="silent",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/default_settings/safety_check.py: "
            "is incompatible with multi-GPU training on PEFT LoRA"
        ),
    ),
    check=_check,
)
