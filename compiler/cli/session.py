"""One run of the command line: where results and diagnostics go, and which targets there are."""

import os
import sys
from collections.abc import Iterable, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Protocol, TextIO

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import json_text
from tunec.compiler.target import Target

OK, INPUT, USAGE, BUG = 0, 1, 2, 70
"""Exit codes: fine, the input is at fault, wrong usage, a bug in tunec."""


def exit_code(said: Iterable[Diagnostic], *, fine: bool) -> int:
    """The exit code of a command: a bug in tunec comes before whatever else was found."""
    if any(each.is_bug for each in said):
        return BUG
    return OK if fine else INPUT


class Registry(Protocol):
    """The targets that this installation has."""

    def names(self) -> tuple[str, ...]:
        """Names of all targets, in the order in which they are listed."""
        ...

    def readable(self) -> Mapping[str, Target]:
        """Every consumer whose files can be read, by name: the targets and further dialects."""
        ...

    def resolve(
        self, name: str, software: Mapping[str, str] | None = None
    ) -> tuple[Target, Version]:
        """The target and version that `huggingface@4.40` means; LookupError if there is none.

        Without a version in the name, the one in `software` holds, then the target's latest.
        """
        ...


class Misuse(Exception):
    """The command line asks for something that makes no sense; exit code 2."""


class UnwritableOutput(Exception):
    """A result could not be written; the message says why."""


class Session(Struct, frozen=True):
    """Streams, and the choice between text and JSON."""

    registry: Registry
    format: str
    stdout: TextIO
    stderr: TextIO
    draws: bool = True
    """Whether whoever reads the results sees more characters than those of ASCII."""

    def result(self, text: str) -> None:
        """Print a result, in whole lines."""
        self.write(text if text.endswith("\n") else text + "\n")

    def tell(self, text: str) -> None:
        """Print a result with texts from outside, in whole lines: none of them moves a terminal."""
        if not text.isprintable():
            from tunec.compiler.diagnostics.terminal import printable_lines

            text = printable_lines(text)
        self.result(text)

    def write(self, text: str) -> None:
        """Print a result as it is, which may be nothing; raise UnwritableOutput."""
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as fault:
            raise UnwritableOutput(fault.strerror) from None

    def json(self, data: Any) -> None:
        """Print a result as JSON."""
        self.result(json_text(data, 2))

    def diagnose(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> None:
        """Print diagnostics for people; with --format json they are part of the result."""
        if self.format == "json":
            return
        for each in diagnostics:
            from tunec.compiler.diagnostics.terminal import render

            self.stderr.write(render(each, sources, color=is_colored(self.stderr)) + "\n")

    def refuse(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> int:
        """Say why there is no result, for people or for machines; the exit code."""
        told = tuple(diagnostics)
        self.diagnose(told, sources)
        if self.format == "json":
            self.json({"diagnostics": [each.to_json() for each in told]})
        return INPUT

    def note(self, text: str) -> None:
        """Say something that is neither result nor diagnostic."""
        if not text.isprintable():
            from tunec.compiler.diagnostics.terminal import printable_lines

            text = printable_lines(text)
        self.stderr.write(text + "\n")


def is_colored(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose owner has not turned colors off (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def standard(registry: Registry, format: str) -> Session:
    """A session on the process's own streams."""
    draws = can_draw(getattr(sys.stdout, "encoding", None))
    return Session(registry, format, _open(sys.stdout), _open(sys.stderr), draws)


def can_draw(encoding: str | None) -> bool:
    """Whether an encoding has the characters that bars and trees are drawn with."""
    try:
        "█▏░…".encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def _open(stream: TextIO | None) -> TextIO:
    """A stream in UTF-8, whatever the locale; one that the shell has closed swallows all.

    A file name may hold bytes that are no text; they are shown as such.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return stream
