"""SimpleTuner is to train fp16 parameters under a gradient scaler."""

from collections.abc import Iterator

from tunec.compiler.lints.diffusion.asked import configs, is_lora, said, word
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        at = said(document, "mixed_precision")
        if at is None or word(document, "mixed_precision") != "fp16":
            continue
        if word(document, "optimizer") in ("adamw_bf16", "adam_bfloat16"):
            continue  # fails for a reason of its own first
        yield Finding(
            "mixed_precision fp16 trains fp16 parameters, whose gradients are not unscaled",
            (at.label("Attempting to unscale FP16 gradients"),),
            ("the weights are cast to fp16, and torch's GradScaler wants fp32 gradients",),
            "write mixed_precision: bf16, or no on a device without bf16",
            certain=not is_lora(document),
        )


RULE = Rule(
    name="fp16-in-simpletuner",
    severity="error",
    consequence="step",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py: weight_dtype by "
            "mixed_precision; torch 2.13.0 amp/grad_scaler.py `_unscale_grads_`: Attempting to "
            "unscale FP16 gradients"
        ),
        "huggingface/diffusers#6086, #10910",
    ),
    check=_check,
)
