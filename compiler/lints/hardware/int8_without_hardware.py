"""LLM.int8() on devices without int8 tensor cores."""

from collections.abc import Iterator

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.hardware.capability import below, with_capability
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    found = run.observed("quantization.format")
    place, device = run.place(found), below(run, 7, 5)
    if found is None or found.value != "int8" or place is None or device is None:
        return
    if place.document.kind == "simpletuner":
        return
    yield Finding(
        f"{with_capability(device)} has no int8 tensor cores for LLM.int8()",
        (place.label("needs 7.5"),),
        (
            (
                "bitsandbytes before 0.45 falls back to fp16 products; under autocast the backward "
                "pass then mixes dtypes: `expected mat1 and mat2 to have the same dtype, but got: "
                "c10::Half != float`"
            ),
        ),
        "use 4 bits, which every device can expand, or an fp16 base",
        severity=None if _is_in_fp16(run) else "warning",
    )


def _is_in_fp16(run: Run) -> bool:
    if run.value("precision.compute") == "fp16":
        return True
    return any(where(each, "use_fp16") for each in run.of("llama-cookbook"))


RULE = Rule(
    name="int8-without-hardware",
    severity="error",
    consequence="step",
    consumers=("transformers",),
    sources=(
        "bitsandbytes README: LLM.int8() needs NVIDIA Turing (compute capability 7.5) or newer",
        (
            "bitsandbytes 0.42.0 and 0.44.1 autograd/_functions.py `supports_igemmlt`, "
            "`MatMul8bitLt`: below 7.5 F.linear, whose output autocast makes fp16; 0.45.5 to "
            "0.50.2 have one product, and diagnostics/cuda.py: Only slow 8-bit matmul is supported"
        ),
        "meta-llama/llama-cookbook#715: c10::Half != float beside a GTX 1080 Ti",
    ),
    check=_check,
)
