"""Whether a repository shows the program by which a run is said to end.

What a repository holds has mostly run. So a finding that says that the program which reads a file
refuses it says more often that another program reads it, or another release: of such errors in
public repositories three in ten were true at first sight, of errors about what runs on otherwise
seven (docs/false-alarms.md). They need what shows the program itself: a command starts the
distribution's own, and no copy of it lies in the repository; the file is one that no other program
reads; or the repository's own program gives what it reads to the trainer's classes, and trains by
one of the trainer's.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.own_source import OwnSource

ENDS: Final = frozenset({"parse", "load", "init", "step", "resume"})
"""Consequences that end a run, at once or where it first comes to them."""
_OF_ITS_OWN: Final = frozenset({"axolotl", "simpletuner"})
"""Kinds of file that only the program itself reads: its keys are no class's that others fill."""
_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "axolotl": ("axolotl",),
    "llamafactory": ("llamafactory", "llmtuner"),
    "ms-swift": ("swift",),
    "openrlhf": ("openrlhf",),
    "simpletuner": ("simpletuner",),
    "verl": ("verl",),
    **dict.fromkeys(TRL, ("trl",)),
}
"""The packages whose copy may read a file of a kind otherwise."""
_STARTS: Final[Mapping[str, str]] = {
    "llamafactory": r"\b(?:llamafactory-cli|lmf)\s+train\b",
    "ms-swift": r"\bswift\s+(?:sft|pt|rlhf)\b",
    "openrlhf": r"-m\s+openrlhf\.cli\.",
    "torchtune": r"\btune\s+run\b",
    "verl": r"-m\s+verl\.trainer\.",
    **dict.fromkeys(TRL, r"\btrl\s+(?:sft|dpo|kto|grpo|reward|rloo)\b"),
}
"""How a command starts the distribution's own program with a file of a kind."""
PARSERS: Final = re.compile(r"\b(?:HfArgumentParser|TrlParser|H4ArgumentParser)\b")
_TRAINS: Final = re.compile(
    r"(?s)from (?:transformers|trl)[\w.]* import (?:\([^)]*|[^\n(]*)\b\w*Trainer\b"
    r"|\b(?:transformers|trl)\.\w*Trainer\b"
)
"""What gives all that it reads to classes, and a trainer that is not the repository's own."""
_REST: Final = r"(?:[^\n]|\\\n)*"
"""The rest of a command, over lines that are continued."""


def is_said_to_end(found: Diagnostic) -> bool:
    """Whether an error says that a run ends."""
    return found.severity == "error" and found.consequence in ENDS


class Started(Struct, frozen=True):
    """What a repository starts."""

    programs: Sequence[str]
    """Those that the command of a finding starts, by their paths or names."""
    own: OwnSource
    about: Sequence[str]
    """The programs that a finding is about: those, or for a file all of its run."""
    commands: Sequence[str]
    """The texts in which commands stand."""


def is_seen(document: Document, started: Started) -> bool:
    """Whether the program that reads a document is seen."""
    if document.kind in _OF_ITS_OWN:
        return True
    if all(started.own.shows_in(started.about, each) for each in (PARSERS, _TRAINS)):
        return True
    if document.format == "shell":
        return not any(each.endswith(".py") for each in started.programs)
    if document.kind in TRL and started.own.shows(PARSERS):
        return True
    start = _STARTS.get(document.kind)
    if start is None:
        return False
    name = re.escape(PurePosixPath(document.name).name)
    command = re.compile(rf"{start}{_REST}(?<![\w-]){name}(?!\w)")
    return any(map(command.search, started.commands))


def packages_of(kind: str) -> tuple[str, ...]:
    """The packages whose copy in a repository may read a file of a kind otherwise."""
    return _PACKAGES.get(kind, ())
