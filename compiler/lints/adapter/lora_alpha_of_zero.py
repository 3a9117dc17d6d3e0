"""LoRA's alpha is zero or negative."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import loras, number
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for lora in loras(run):
        at = lora.place("lora_alpha")
        alpha = None if at is None else number(at.value)
        if at is None or alpha is None or alpha > 0:
            continue
        if lora.document.kind == "llamafactory" and alpha == 0:
            continue  # `lora_alpha or lora_rank * 2`
        what = "nothing is trained" if alpha == 0 else "adapters push the wrong way at first"
        yield Finding(
            f"lora_alpha is {at.value}: {what}",
            (at.label("scales every adapter"),),
            ("an adapter adds alpha / r times its product, and its gradient has the same factor",),
            "write the rank, or twice the rank",
            severity=None if alpha == 0 else "warning",
        )


RULE = Rule(
    name="lora-alpha-of-zero",
    severity="error",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/lora/layer.py `LoraLayer.update_layer`: scaling = "
            "lora_alpha / r; `Linear.forward`"
        ),
        "llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py: lora_alpha or lora_rank * 2",
    ),
    check=_check,
)
