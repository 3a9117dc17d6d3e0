"""CUDA_VISIBLE_DEVICES names a device twice, and leaves none."""

from collections.abc import Iterator

from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.launch.scripts import launches, listed, variable
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run):
        place = variable(document, "CUDA_VISIBLE_DEVICES")
        names = listed(place)
        if document.value("launcher") in STARTERS or place is None or names is None:
            continue
        twice = [name for at, name in enumerate(names) if name in names[:at]]
        if twice:
            yield Finding(
                f"CUDA_VISIBLE_DEVICES={place.value} names device {twice[0]} twice: none is "
                "visible",
                (place.label("no device"),),
                ("a repeated number empties the list",),
                f"write {','.join(dict.fromkeys(names))}",
            )


RULE = Rule(
    name="visible-device-twice",
    severity="error",
    consequence="init",
    consumers=("torch",),
    sources=(
        (
            "torch 2.13.0 cuda/__init__.py `_parse_visible_devices`: Repeated id results in "
            "empty set"
        ),
    ),
    check=_check,
)
