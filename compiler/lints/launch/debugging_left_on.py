"""A variable that is for finding faults is set for a whole run."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.launch.scripts import launches, variable
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SHAPES: Final = "before each collective the processes gather the shapes of all, to compare them"

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
    "ACCELERATE_DEBUG_MODE": (("1", "true", "yes", "on", "y", "t"), _SHAPES),
}


def _check(run: Run) -> Iterator[Finding]:
    yield from _of_accelerate(run)
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


def _of_accelerate(run: Run) -> Iterator[Finding]:
    """The same variable by accelerate's file or flag, of which `no` by itself has no effect."""
    places = (*run.each("accelerate", "debug"), *run.each("launch", "flags.debug"))
    for place in places:
        is_several = place.document.value("distributed_type") not in ("NO", "no", False)
        is_text = place.document.kind == "accelerate" and isinstance(place.value, str)
        if (place.value is True or (is_text and place.value)) and is_several:
            yield Finding(
                f"{place.path.removeprefix('flags.')} slows the whole run",
                (place.label("left on"),),
                (_SHAPES, *(("the launcher asks only whether something is written",) * is_text)),
                "remove it when the fault is found",
            )


RULE = Rule(
    name="debugging-left-on",
    severity="warning",
    consequence="slow",
    consumers=("torch", "accelerate"),
    sources=(
        "NVIDIA CUDA C++ Programming Guide 12.6, CUDA_LAUNCH_BLOCKING",
        (
            "torch 2.13 documentation, distributed, TORCH_DISTRIBUTED_DEBUG: DETAIL may impact the "
            "performance; notes/cuda, PYTORCH_NO_CUDA_MEMORY_CACHING"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 utils/launch.py: ACCELERATE_DEBUG_MODE by --debug; "
            "utils/operations.py `verify_operation`"
        ),
    ),
    check=_check,
)
