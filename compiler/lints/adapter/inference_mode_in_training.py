"""Adapters are configured for inference, and are to be trained."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.adapter.lora import adapters
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for lora in adapters(run):
        at = lora.place("inference_mode")
        if lora.document.kind not in ("peft", "glm4") or at is None or at.value is not True:
            continue
        trains = lora.document.kind == "glm4" or bool(run.of("trainer", "deepspeed", "accelerate"))
        if trains:
            yield Finding(
                "inference_mode is true: every adapter is frozen",
                (at.label("no parameter is trained"),),
                (
                    "PEFT writes true into the adapters that it saves; get_peft_model keeps it",
                    "PeftModel.from_pretrained(..., is_trainable=True) turns it off again",
                ),
                "write inference_mode: false",
                Fix((at.replaced(value=False),), "safe"),
                severity=None if lora.document.kind == "glm4" else "warning",
            )


RULE = Rule(
    name="inference-mode-in-training",
    severity="error",
    consequence="step",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/tuners_utils.py `BaseTuner.inject_adapter`: "
            "inference_mode freezes the adapters; peft_model.py `save_pretrained` writes it as true"
        ),
    ),
    check=_check,
)
