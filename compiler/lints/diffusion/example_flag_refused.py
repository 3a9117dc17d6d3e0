"""A flag that an example script of diffusers does not take, or not so, or cannot do without."""

from collections.abc import Iterator, Sequence
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, nearest
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.diffusion.examples import (
    choices,
    commands,
    is_flag,
    is_near,
    scripts,
    types,
)
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SINGLE: Final = (
    *("instance_prompt", "class_prompt", "output_dir", "instance_data_dir", "class_data_dir"),
    *("initializer_token", "placeholder_token", "pretrained_model_name_or_path", "hub_model_id"),
)
"""Flags of one word in every script, besides those that are numbers."""
_PROMPTED: Final = ("train_dreambooth", "textual_inversion", "train_text_to_image_lora")
"""Whose validation has one prompt: control networks take several."""
_TOLD: Final = ("resolution", "train_batch_size", "learning_rate", "max_train_steps")
_WHOLE: Final = 5
"""Flags of a command that is no part of one: threads show fewer, and no output_dir."""
_NUMBERS: Final = {"int": "a whole number", "float": "a number"}


def _check(run: Run) -> Iterator[Finding]:
    for document, script in commands(run):
        if script not in scripts():
            continue
        flags = scripts()[script]["flags"]
        for path, place in document.found.items():
            if is_flag(path, flags):
                yield from _value(script, path, place)
            else:
                yield _unknown(script, place, flags)
        yield from _lacking(document, script)


def _value(script: str, flag: str, place: Place) -> Iterator[Finding]:
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
    is_single = flag in _SINGLE or kind in _NUMBERS
    if flag == "validation_prompt" and script.startswith(_PROMPTED):
        is_single = True
    if isinstance(value, list) and is_single:
        yield Finding(
            f"{flag} takes one word, and is given {len(value)}",
            (place.label("unrecognized arguments"),),
            ("what stands between blanks is a word of its own, unless quotes are around it",),
            f"write --{flag} '{' '.join(map(str, value))}'",
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
    is_alike = is_near(place.path, flags)
    others = sorted(name for name, each in scripts().items() if place.path in each["flags"])
    return Finding(
        f"{script}.py has no flag `{place.path}`",
        (place.key_label("unrecognized arguments"),),
        (
            *((f"{joined(others[:2])} takes it",) if others else ()),
            *(() if is_alike else ("a script of one's own that is called so may take it",)),
        ),
        f"did you mean `{near[0]}`?" if near else "remove it",
        Fix((place.renamed(near[0]),), "unsafe") if is_alike else None,
        severity=None if is_alike else "warning",
    )


def is_whole(document: Document) -> bool:
    """Whether a command says so much that nothing seems to be left out of it by who shows it."""
    is_told = any(document.get(each) is not None for each in _TOLD)
    return len(document.found) >= _WHOLE and is_told and document.get("output_dir") is not None


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
                    # a part of a command is shown more often than all of it
                    severity="warning" if is_whole(document) else "note",
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
