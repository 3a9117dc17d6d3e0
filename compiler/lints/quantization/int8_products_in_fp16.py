"""LLM.int8() computes in fp16 whatever the run's dtype is."""

from collections.abc import Iterator

from tunec.compiler.lints.quantization.base import quantised
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    base = quantised(run)
    if base is None or base.form != "int8" or base.document.kind == "simpletuner":
        return
    computed = run.observed("precision.compute")
    place = run.place(computed)
    if computed is None or place is None or computed.value != "bf16":
        return
    yield Finding(
        "8-bit products are made in fp16, and the run computes in bf16",
        (base.place.label("LLM.int8()"), place.label("bf16", primary=False)),
        (
            (
                "bitsandbytes casts each input to fp16: activations past 65504 overflow, which "
                "models trained in bf16 may have"
            ),
        ),
        "use 4 bits with bnb_4bit_compute_dtype bfloat16 if the loss turns nan",
    )


RULE = Rule(
    name="int8-products-in-fp16",
    severity="note",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "bitsandbytes 0.49.0 and 0.50.2 autograd/_functions.py `MatMul8bitLt.forward`: inputs "
            "will be cast from torch.bfloat16 to float16 during quantization"
        ),
    ),
    check=_check,
)
