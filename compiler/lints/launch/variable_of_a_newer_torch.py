"""The allocator's new variable, with a torch that reads the old one alone."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import launches, variable
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NEW: Final = "PYTORCH_ALLOC_CONF"
_OLD: Final = "PYTORCH_CUDA_ALLOC_CONF"


def _check(run: Run) -> Iterator[Finding]:
    if run.runs("torch<2.8") is not True:
        return
    seen = set[str]()
    for document in launches(run):
        place = variable(document, _NEW)
        if place is None or variable(document, _OLD) is not None or str(place.span) in seen:
            continue
        seen.add(str(place.span))
        yield Finding(
            f"{run.release('torch')} does not read {_NEW}",
            (place.key_label("not a variable that is read"),),
            (f"the allocator's variable is {_OLD}; the other name is younger",),
            f"write {_OLD}",
        )


RULE = Rule(
    name="variable-of-a-newer-torch",
    severity="error",
    consequence="silent",
    consumers=("torch",),
    sources=(
        "torch 2.0 to 2.7 c10/cuda/CUDAAllocatorConfig.cpp: PYTORCH_CUDA_ALLOC_CONF alone",
        "torch 2.13.0 c10/core/AllocatorConfig.cpp: both names; pytorch/pytorch#183387",
    ),
    check=_check,
)
