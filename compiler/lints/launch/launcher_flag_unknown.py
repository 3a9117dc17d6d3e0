"""A flag that no release of the launcher has."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.flags import FLAGS, MODULE_FLAGS
from tunec.compiler.lints.launch.launcher_flag_of_another import foreign
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PREFIX: Final = "flags."
_MOST: Final = 3
"""Unknown flags, above which they are a script's, which stands behind a placeholder."""
_UNDASHED: Final = "deepspeed"
"""Whose parser has its flags with `_` alone."""


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, *FLAGS):
        launcher = str(document.value("launcher"))
        if document.get("script") is None:
            continue  # `uv pip install deepspeed -U`
        named = {path.removeprefix(_PREFIX): at for path, at in document.found.items()}
        named = {n: at for n, at in named.items() if at.path != n and "." not in n}
        if sum(not _has(launcher, each, document) for each in named) > _MOST:
            continue  # the script is not where it is taken to be
        for name, place in named.items():
            if name in foreign(launcher):
                continue
            if not _has(launcher, name, document):
                yield _unknown(launcher, name, place)
            elif launcher == _UNDASHED and "-" in _written(place):
                yield _dashed(launcher, name, place)


def _has(launcher: str, name: str, document: Document) -> bool:
    """Whether the parser has the flag, or one that begins so, which argparse takes for it."""
    known = FLAGS[launcher]
    word = document.get("launcher")
    if launcher == "torchrun" and word is not None and "torchrun" not in str(word.node.written):
        known |= MODULE_FLAGS
    if name.startswith("no_") and name not in known:
        name = name.removeprefix("no_")
    return any(each.startswith(name) for each in known)


def _written(place: Place) -> str:
    """The flag as it stands in the file, without its own dashes."""
    span = place.key_span
    line = place.document.text.split("\n")[span.line - 1 : span.line]
    return line[0][span.column - 1 : span.end_column - 1].lstrip("-") if line else ""


def _unknown(launcher: str, name: str, place: Place) -> Finding:
    near = next(iter(nearest(name, FLAGS[launcher])), None)
    written = _written(place) or name
    return Finding(
        f"{launcher} has no flag --{written}",
        (place.key_label("not known"),),
        (f"{launcher}: unrecognized arguments: --{written}",),
        f"did you mean `--{near}`?" if near else "remove it, or write it behind the script",
        Fix((place.renamed(near),), "unsafe") if near and place.node.key_span else None,
    )


def _dashed(launcher: str, name: str, place: Place) -> Finding:
    written, known = _written(place), FLAGS[launcher]
    name = name if name in known else min(each for each in known if each.startswith(name))
    return Finding(
        f"{launcher} has --{name}, and not --{written}",
        (place.key_label("not known"),),
        (f"{launcher}: unrecognized arguments: --{written}",),
        f"write --{name}",
    )


RULE = Rule(
    name="launcher-flag-unknown",
    severity="error",
    consequence="parse",
    consumers=("torch", "deepspeed", "accelerate"),
    sources=(
        (
            "torch 2.13.0 distributed/run.py `get_args_parser`; deepspeed 0.14.5 to 0.19.8 "
            "launcher/runner.py `parse_args`; accelerate 0.33.0 to 1.15.0 commands/launch.py "
            "`launch_command_parser`; asked: unrecognized arguments"
        ),
    ),
    check=_check,
)
