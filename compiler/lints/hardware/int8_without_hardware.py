"""LLM.int8() on devices without int8 tensor cores."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.hardware.capability import below, with_capability
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_ONE_PRODUCT: Final = "bitsandbytes>=0.45"
_TRANSFORMERS: Final = "transformers>=5"
"""It takes no bitsandbytes before 0.46.1."""
_MIXED: Final = (
    "bitsandbytes before 0.45 falls back to fp16 products; under autocast the backward pass then "
    "mixes dtypes: `expected mat1 and mat2 to have the same dtype, but got: c10::Half != float`"
)
_SLOW: Final = (
    "bitsandbytes 0.45 and later have one product for all devices, and say of older ones: Only "
    "slow 8-bit matmul is supported"
)


def _check(run: Run) -> Iterator[Finding]:
    found = run.observed("quantization.format")
    place, device = run.place(found), below(run, 7, 5)
    if found is None or found.value != "int8" or place is None or device is None:
        return
    if place.document.kind == "simpletuner":
        return
    is_slow = _has_one_product(run)
    yield Finding(
        f"{with_capability(device)} has no int8 tensor cores for LLM.int8()",
        (place.label("needs 7.5"),),
        (_SLOW,) if is_slow else (_MIXED, *((_SLOW,) if is_slow is None else ())),
        "use 4 bits, which every device can expand, or an fp16 base",
        severity=None if is_slow is False and _is_in_fp16(run) else "warning",
        consequence="slow" if is_slow else None,
    )


def _has_one_product(run: Run) -> bool | None:
    """Whether bitsandbytes multiplies alike on every device; None where nothing tells."""
    if run.runs(_TRANSFORMERS) is True:
        return True
    return run.runs(_ONE_PRODUCT)


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
            "`MatMul8bitLt`: below 7.5 F.linear, whose output autocast makes fp16"
        ),
        (
            "bitsandbytes 0.45.0 to 0.50.2 autograd/_functions.py `MatMul8bitLt`: cublasLt for all "
            "devices, the gradient cast to the dtype of the input; diagnostics/cuda.py: Only slow "
            "8-bit matmul is supported; METADATA of 0.50.2: SM60+ minimum, SM75+ recommended"
        ),
        "transformers 5.0.0 to 5.23.0 utils/import_utils.py `BITSANDBYTES_MIN_VERSION`: 0.46.1",
        "meta-llama/llama-cookbook#715: c10::Half != float beside a GTX 1080 Ti",
    ),
    check=_check,
)
