"""Options of a recomputation that is not turned on."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_SWITCH: Final = "gradient_checkpointing"
_OPTIONS: Final = {
    "axolotl": ("activation_offloading", "selective_checkpointing"),
}
_REFUSED: Final = ("activation_offloading", "selective_checkpointing")
"""Axolotl stops at these; the rest nobody looks at."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer", "axolotl"):
        if document.is_view or document.kind == "llamafactory" or not _is_off(run, document):
            continue
        for place in _said(document):
            yield _finding(place, document)


def _said(document: Document) -> Iterator[Place]:
    keys = (f"{_SWITCH}_kwargs", *_OPTIONS.get(document.kind, ()))
    for key in keys:
        place = document.get(key)
        if place is not None and _is_set(place.value):
            yield place


def _is_set(value: Any) -> bool:
    return value not in (None, False, "", 0, {}, "none", "None")


def _is_off(run: Run, document: Document) -> bool:
    if _SWITCH in document.unknown:
        return False
    said = document.get(_SWITCH)
    if said is not None:
        return said.value in (False, None)
    if document.kind == "axolotl":
        return True
    return run.effective(document.kind, _SWITCH).value is False


def _finding(place: Place, document: Document) -> Finding:
    switch = document.get(_SWITCH)
    selective = document.get(f"{_SWITCH}_kwargs.selective")
    is_selective = document.kind == "sft" and selective is not None and selective.value is True
    refused = place.path in _REFUSED or is_selective
    when: Consequence = "init" if is_selective else "parse" if refused else "silent"
    return Finding(
        f"{place.path} without {_SWITCH}: nothing is recomputed",
        (
            place.key_label("refused" if refused else "does nothing"),
            *([switch.label("", primary=False)] if switch else []),
        ),
        (),
        f"set {_SWITCH}: true, or remove it",
        severity="error" if refused else None,
        consequence=when,
    )


RULE = Rule(
    name="checkpointing-options-ignored",
    severity="warning",
    consequence="silent",
    consumers=("transformers", "axolotl"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `_inner_training_loop`: "
            "gradient_checkpointing_kwargs are passed under `if args.gradient_checkpointing`"
        ),
        (
            "axolotl 0.13.2 to 0.19.0 utils/schemas/validation.py: activation_offloading requires "
            "gradient_checkpointing"
        ),
    ),
    check=_check,
)
