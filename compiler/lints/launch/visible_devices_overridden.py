"""CUDA_VISIBLE_DEVICES before the deepspeed launcher, which takes its own selection."""

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
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `main`: Detected VISIBLE_DEVICES but "
            "ignoring it because one or several of --include/--exclude/--num_gpus/--num_nodes"
        ),
    ),
    check=_check,
)
