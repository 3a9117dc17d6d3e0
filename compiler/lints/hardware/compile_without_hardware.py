"""torch.compile on devices that Triton has no code for."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.hardware.capability import below, with_capability
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = (
    ("trainer", "torch_compile"),
    ("axolotl", "torch_compile"),
    ("trainer", "use_liger_kernel"),
    ("llamafactory", "enable_liger_kernel"),
    ("axolotl", "liger_rms_norm"),
)


def _check(run: Run) -> Iterator[Finding]:
    device = below(run, 7)
    if device is None:
        return
    places = {p.span: p for kind, key in _KEYS for p in run.each(kind, key) if p.value is True}
    for place in places.values():
        yield Finding(
            f"{with_capability(device)} is too old for Triton",
            (place.label("needs 7.0"),),
            ("Found GPU which is too old to be supported by the triton GPU compiler",),
            "leave it out",
        )


RULE = Rule(
    name="compile-without-hardware",
    severity="error",
    consequence="step",
    consumers=("torch",),
    sources=(
        (
            "torch 2.13.0 _inductor/exc.py `GPUTooOldForTriton`: needs CUDA capability 7.0; "
            "utils/_triton.py `has_triton`: get_device_capability() >= (7, 0)"
        ),
    ),
    check=_check,
)
