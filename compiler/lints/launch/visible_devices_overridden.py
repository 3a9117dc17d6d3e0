"""CUDA_VISIBLE_DEVICES before a launcher that takes its own selection."""

from collections.abc import Iterator

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import count, launches, listed, variable
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_COUNTS = ("flags.num_gpus", "flags.num_accelerators")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "deepspeed"):
        visible = variable(document, "CUDA_VISIBLE_DEVICES")
        names, found = listed(visible), _selection(document)
        if visible is None or names is None or found is None or names == found[1]:
            continue
        place, taken = found
        yield Finding(
            f"CUDA_VISIBLE_DEVICES {','.join(names)} is ignored for {_word(place)}",
            (
                visible.label("ignored"),
                place.label(f"takes {','.join(taken)}" if taken else "holds", primary=False),
            ),
            ("the launcher says so among its messages, and sets the variable by itself",),
            f"leave out {_word(place)}, or say the devices as --include "
            f"localhost:{','.join(names)}",
        )
    yield from _of_accelerate(run)


def _of_accelerate(run: Run) -> Iterator[Finding]:
    """`gpu_ids` is what the processes see: the variable is set to it."""
    for document in launches(run, "accelerate"):
        visible, chosen = variable(document, "CUDA_VISIBLE_DEVICES"), _gpu_ids(run, document)
        names, taken = listed(visible), listed(chosen)
        if visible is None or chosen is None or taken in (None, ("all",)) or names == taken:
            continue
        yield Finding(
            f"CUDA_VISIBLE_DEVICES {visible.value} is overridden by gpu_ids {chosen.value}",
            (visible.label("overridden"), chosen.label("taken", primary=False)),
            ("accelerate sets the variable to gpu_ids: all devices of the node are numbered",),
            "write gpu_ids: all, or leave out the variable",
        )


def _gpu_ids(run: Run, document: Document) -> Place | None:
    return document.get("flags.gpu_ids") or run.said("accelerate", "gpu_ids")


def _selection(document: Document) -> tuple[Place, tuple[str, ...] | None] | None:
    """What overrides the variable, and the devices that it takes."""
    include = document.get("include")
    if include is not None and isinstance(include.value, list):
        return include, tuple(str(each) for each in include.value)
    for key in _COUNTS:
        place = document.get(key)
        number = count(place)
        if place is not None and number is not None:
            return place, tuple(str(each) for each in range(number))
    for key in ("include_filter", "exclude_filter", "exclude"):
        place = document.get(key)
        if place is not None:
            return place, None
    return None


def _word(place: Place) -> str:
    return f"--{place.path.rpartition('.')[2].removesuffix('_filter')}"


RULE = Rule(
    name="visible-devices-overridden",
    severity="error",
    consequence="silent",
    consumers=("deepspeed", "accelerate"),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `main`: Detected VISIBLE_DEVICES but "
            "ignoring it because one or several of --include/--exclude/--num_gpus/--num_nodes"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 utils/launch.py `prepare_multi_gpu_env`, "
            "`prepare_simple_launcher_cmd_env`: CUDA_VISIBLE_DEVICES = gpu_ids unless all"
        ),
    ),
    check=_check,
)
