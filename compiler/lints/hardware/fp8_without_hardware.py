"""fp8 on devices whose tensor cores do not have it."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.hardware.capability import below, with_capability
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final[tuple[tuple[str, str, tuple[Any, ...]], ...]] = (
    ("accelerate", "mixed_precision", ("fp8",)),
    ("launch", "flags.mixed_precision", ("fp8",)),
    ("simpletuner", "mixed_precision", ("fp8",)),
    ("simpletuner", "base_model_precision", ("fp8-torchao",)),
    ("llamafactory", "fp8", (True,)),
    ("axolotl", "fp8", (True,)),
)


def _check(run: Run) -> Iterator[Finding]:
    device = below(run, 8, 9)
    if device is None:
        return
    for kind, key, words in _KEYS:
        for place in run.each(kind, key):
            if any(place.value is word or place.value == word for word in words):
                yield Finding(
                    f"{with_capability(device)} has no fp8 tensor cores",
                    (place.label("needs 8.9"),),
                    ("the first scaled product fails: torch._scaled_mm asks for 8.9 (Ada) or 9.0",),
                    "use bf16 where the device has it, else fp16",
                    consequence=_parsed(run) if kind == "axolotl" else None,
                )


def _parsed(run: Run) -> Consequence | None:
    return None if run.runs("axolotl>=0.13") is False else "parse"


RULE = Rule(
    name="fp8-without-hardware",
    severity="error",
    consequence="step",
    consumers=("torch", "accelerate"),
    sources=(
        (
            "torch 2.13.0 aten/src/ATen/native/cuda/ScaledBlas.cpp `_scaled_mm`: only supported on "
            "CUDA devices with compute capability >= 9.0 or 8.9"
        ),
        "accelerate 1.15.0 utils/transformer_engine.py, utils/ao.py: fp8 recipes",
        "axolotl 0.13.2 to 0.19.0 utils/schemas/config.py `check_fp8`: not supported on this GPU",
    ),
    check=_check,
)
