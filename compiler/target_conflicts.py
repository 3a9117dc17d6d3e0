"""Targets that cannot be written from one plan together, though each can be written alone."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import joined
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.requirements import Asked

_LOST: Final = "E0901"
"""The code of a value that a target cannot express."""


def compiled_apart(
    found: Sequence[Diagnostic], asked: Sequence["Asked"], alone: Iterable[bool]
) -> tuple[Diagnostic, ...]:
    """The diagnostics, with a note to compile the targets separately if that would work.

    `alone`: whether each target's files can be written if no other target is requested.
    """
    errors = [each for each in found if each.severity == "error"]
    if len(asked) < 2 or any(each.id != _LOST for each in errors):
        return tuple(found)
    if not errors or not all(alone):
        return tuple(found)
    names = joined((f"`--target {target.name}`" for target, _ in asked), "and")
    note = f"each of these targets can be written alone: compile {names} apart"
    return tuple(
        replace(each, notes=(*each.notes, note)) if each in errors else each for each in found
    )
