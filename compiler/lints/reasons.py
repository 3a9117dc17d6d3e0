"""Why a finding in a repository has a lower level: what it lacks of a witness.

A finding keeps the level of its rule where it has a witness: something starts the program that
reads the file, nothing of the repository's own comes in between, and the statement is reached.
Each reason against it is one row: the sentence that the user reads, and the level that is left.
"""

from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Severity
from tunec.schemas.frozen import replace


class Reason(Struct, frozen=True):
    """What is against a finding, and the level that an error and a warning then have."""

    text: str
    error: Severity = "note"
    warning: Severity = "note"


_LEVELS: Final[tuple[Severity, ...]] = ("note", "warning", "error")

# ── what starts it ────────────────────────────────────────────────────────────────────────────────
UNNAMED: Final = Reason("nothing in this repository names the file: no run of it is known")
NO_READER: Final = Reason("nothing in this repository names the program whose file it is taken for")
UNNAMED_ENGINE: Final = Reason(UNNAMED.text, error="warning", warning="warning")
"""For a refusal, which whoever gives the file to DeepSpeed meets."""
OF_A_COPY: Final = Reason("the file belongs to a library that this repository has a copy of")
OF_TESTS: Final = Reason(
    "the file is one of tests: it is there for them, and no run of it is known"
)
TOGETHER: Final = Reason(
    "no file says that these are one run: name them together if they are",
)

# ── what reads it ─────────────────────────────────────────────────────────────────────────────────
READ_BY_ITSELF: Final = Reason(
    "a script of this repository loads the file, and takes its keys itself"
)
TEMPLATE: Final = Reason(
    "much of the file is left empty, as a template's: what fills it is not known"
)
OWN_VERL: Final = Reason("this repository has a verl of its own, which may read it otherwise")
OWN_COPY: Final = Reason(
    "this repository has a copy of the program, which may differ from every release"
)
OWN_FLAG: Final = Reason(
    "the program that is started has the flag for itself, and may read it otherwise"
)
OWN_FIELD: Final = Reason("a class of this repository has the field, and may take other values")
OWN_TEMPLATE: Final = Reason("a script of this repository registers a template of that name")
OWN_TRAINER: Final = Reason("the trainer is a class of this repository, which may do it otherwise")
AS_TEXT: Final = Reason("a script of this repository gives each value to its parser as text")

# ── whether it is reached as it is written ────────────────────────────────────────────────────────
SET_LATER: Final = Reason("a script of this repository sets it itself after it has read it")
BY_NAME: Final = Reason(
    "the script gives it by a name, which its command or its caller may fill otherwise"
)
UNREACHED: Final = Reason("it stands under a condition that no command here is known to meet")


def lowered(found: Diagnostic, why: Reason) -> Diagnostic:
    """A finding at the level that a reason leaves, with its sentence; a note stays as it is."""
    if found.severity == "note":
        return found
    left = why.error if found.severity == "error" else why.warning
    if left == found.severity:
        return found
    fix = found.fix if left != "note" else None
    return replace(found, severity=left, notes=(*found.notes, why.text), fix=fix)
