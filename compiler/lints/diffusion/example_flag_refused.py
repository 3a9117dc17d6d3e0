"""A flag that an example script of diffusers does not take, or not so, or cannot do without."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, nearest
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.diffusion.examples import choices, commands, scripts, types
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LIKE: Final = 0.88
_NUMBERS: Final = {"int": "a whole number", "float": "a number"}


def _check(run: Run) -> Iterator[Finding]:
    for document, script in commands(run):
        if script not in scripts():
            continue
        flags = scripts()[script]["flags"]
        for path, place in document.found.items():
            if any(flag == path or flag.startswith(path) for flag in flags):
                yield from _value(path, place)  # argparse takes the beginning of a flag for it
            else:
                yield _unknown(script, place, flags)
        yield from _lacking(document, script)


def _value(flag: str, place: Place) -> Iterator[Finding]:
    words, kind, value = choices().get(flag), types().get(flag, "str"), place.value
    if words and isinstance(value, str) and value not in words:
        yield Finding(
            f"{flag} {value} is refused",
            (place.label("invalid choice"),),
            (f"the script takes {joined(words)}",),
            "write one of these",
        )
    if kind == "switch" and place.node.written is not None:
        yield Finding(
            f"{flag} takes no value",
            (place.label("unrecognized arguments"),),
            ("it is a switch: off where it is left out",),
            f"write --{flag} alone" if str(value).lower() == "true" else "remove it",
        )
    is_half = kind == "int" and isinstance(value, float)
    if kind in _NUMBERS and isinstance(value, str | float) and (not is_number(value) or is_half):
        yield Finding(
            f"{flag} {value} is refused",
            (place.label("invalid value"),),
            (f"the script takes {_NUMBERS[kind]}",),
            "write the number alone",
        )


def _unknown(script: str, place: Place, flags: Sequence[str]) -> Finding:
    near = nearest(place.path, frozenset(flags))[:1]
    is_near = bool(near) and SequenceMatcher(None, place.path, near[0]).ratio() >= _LIKE
    others = sorted(name for name, each in scripts().items() if place.path in each["flags"])
    return Finding(
        f"{script}.py has no flag `{place.path}`",
        (place.key_label("unrecognized arguments"),),
        (
            *((f"{joined(others[:2])} takes it",) if others else ()),
            *(() if is_near else ("a script of one's own that is called so may take it",)),
        ),
        f"did you mean `{near[0]}`?" if near else "remove it",
        Fix((place.renamed(near[0]),), "unsafe") if is_near else None,
        severity=None if is_near else "warning",
    )


def _lacking(document: Document, script: str) -> Iterator[Finding]:
    for flag in scripts()[script]["required"]:
        if document.get(flag) is None and flag not in document.unknown:
            first = next(iter(document.found.values()), None)
            if first is not None:
                yield Finding(
                    f"{script}.py is not given --{flag}",
                    (first.key_label("among these flags"),),
                    ("the following arguments are required",),
                    f"write --{flag}",
                    severity="note",  # a part of a command is shown more often than all of it
                )


RULE = Rule(
    name="example-flag-refused",
    severity="error",
    consequence="parse",
    consumers=("diffusers",),
    sources=(
        (
            "huggingface/diffusers 0.27.2 to 0.40.0 and 58eb52c, examples: argparse of each script "
            "that trains, `parse_args`; schemas/json/diffusers/examples.json"
        ),
        "Python 3.11 argparse.py `parse_args`: unrecognized arguments; invalid choice",
    ),
    check=_check,
)
