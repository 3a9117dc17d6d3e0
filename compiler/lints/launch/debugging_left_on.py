"""A variable that is for finding faults is set for a whole run."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.launch.scripts import launches, variable
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_WHAT: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "CUDA_LAUNCH_BLOCKING": (("1",), "each kernel is waited for before the next is launched"),
    "TORCH_DISTRIBUTED_DEBUG": (
        ("detail",),
        "each collective is checked by further ones among all processes before it runs",
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (
        ("1",),
        "each tensor is allocated and freed by the driver, which waits for the device",
    ),
}


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run):
        for name, (words, why) in _WHAT.items():
            place = variable(document, name)
            if place is not None and str(place.value).lower() in words:
                yield Finding(
                    f"{name}={place.value} slows the whole run",
                    (place.label("left on"),),
                    (why,),
                    "remove it when the fault is found",
                )


RULE = Rule(
    name="debugging-left-on",
    severity="warning",
    consequence="slow",
    consumers=("torch",),
    sources=(
        "NVIDIA CUDA C++ Programming Guide 12.6, CUDA_LAUNCH_BLOCKING",
        (
            "torch 2.13 documentation, distributed, TORCH_DISTRIBUTED_DEBUG: DETAIL may impact the "
            "performance; notes/cuda, PYTORCH_NO_CUDA_MEMORY_CACHING"
        ),
    ),
    check=_check,
)
