"""A setting of torch's allocator that it does not take."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import launches, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NAMES: Final = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_SWITCHES: Final = (
    *("expandable_segments", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register"),
    "pinned_use_background_threads",
)
_LEAST_SPLIT: Final = 20
_SINCE: Final = (("expandable_segments", "2.1"), ("pinned_use_background_threads", "2.5"))
"""Settings, and a release before which none has them: pytorch/pytorch#135524, which brought the
second, was opened in September 2024, behind torch 2.4."""


def _check(run: Run) -> Iterator[Finding]:
    seen = set[str]()
    for document in launches(run):
        for name in _NAMES:
            place = variable(document, name)
            if place is None or not isinstance(place.value, str) or str(place.span) in seen:
                continue
            seen.add(str(place.span))
            for part in place.value.split(","):
                why = _why(part.strip()) if "[" not in place.value else None
                why = why or _too_new(run, part.partition(":")[0].strip())
                if why is not None:
                    yield _finding(place, name, *why)


def _why(part: str) -> tuple[str, str] | None:
    """What is wrong with one setting, and what it should be."""
    key, given, value = part.partition(":")
    if not part:
        return None
    if not given:
        key, _, value = part.partition("=")
        return f"`{part}` has no colon", f"{key}:{value or 'VALUE'}"
    key, value = key.strip(), value.strip()
    if key in _SWITCHES and value not in ("True", "False"):
        return f"{key} is True or False, and not {value}", f"{key}:{value.title()}"
    if key == "max_split_size_mb" and value.isdigit() and int(value) < _LEAST_SPLIT:
        return f"{key} {value} is below {_LEAST_SPLIT}", f"{key}:128"
    if key == "garbage_collection_threshold" and not _is_share(value):
        return f"{key} {value} does not lie between 0 and 1", f"{key}:0.8"
    return None


def _too_new(run: Run, key: str) -> tuple[str, str] | None:
    """What is wrong with a setting that the release that runs does not have."""
    for name, since in _SINCE:
        if key == name and run.runs(f"torch<{since}") is True:
            return (
                f"{run.release('torch')} has no {key}",
                "max_split_size_mb:128, or take a newer one",
            )
    return None


def _is_share(value: str) -> bool:
    try:
        return 0 < float(value) < 1
    except ValueError:
        return False


def _finding(place: Place, name: str, why: str, mend: str) -> Finding:
    return Finding(
        f"{name}: {why}",
        (place.label("refused"),),
        ("it is read when the first tensor is put on a device",),
        f"write {mend}",
    )


RULE = Rule(
    name="allocator-setting-refused",
    severity="error",
    consequence="load",
    consumers=("torch",),
    sources=(
        (
            "torch 2.13.0 c10/core/AllocatorConfig.cpp, AllocatorConfig.h `ConfigTokenizer`, "
            "docs notes/cuda.rst: Optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF"
        ),
        (
            "torch 2.0.1 c10/cuda/CUDACachingAllocator.cpp `parseArgs`: Unrecognized "
            "CachingAllocator option; jkulhanek/wild-gaussians#16"
        ),
    ),
    check=_check,
)
