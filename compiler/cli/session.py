"""One run of the command line: its output streams, and the available targets."""

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Protocol, TextIO

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import json_text
from tunec.compiler.target import Target

OK, INPUT, USAGE, BUG = 0, 1, 2, 70
"""Exit codes: success, fault in the input, wrong usage, bug in tunec."""


def exit_code(said: Iterable[Diagnostic], *, fine: bool) -> int:
    """The exit code of a command: a bug in tunec outweighs all other findings."""
    if any(each.is_bug for each in said):
        return BUG
    return OK if fine else INPUT


class Registry(Protocol):
    """The targets that this installation has."""

    def names(self) -> tuple[str, ...]:
        """Names of all targets, in listing order."""
        ...

    def readable(self) -> Mapping[str, Target]:
        """Every consumer whose files can be read, by name: the targets and further dialects."""
        ...

    def resolve(
        self, name: str, software: Mapping[str, str] | None = None
    ) -> tuple[Target, Version]:
        """The target and version that `huggingface@4.40` means; LookupError if there is none.

        Without a version in the name, the one in `software` counts, then the target's latest.
        """
        ...


class Misuse(Exception):
    """The command line makes no sense; exit code 2."""


class UnwritableOutput(Exception):
    """A result could not be written; the message says why."""


class Session(Struct, frozen=True):
    """The streams, and the choice between text and JSON."""

    registry: Registry
    format: str
    stdout: TextIO
    stderr: TextIO
    draws: bool = True
    """Whether the output may contain characters beyond ASCII."""

    def result(self, text: str) -> None:
        """Print a result, in whole lines."""
        self.write(text if text.endswith("\n") else text + "\n")

    def tell(self, text: str) -> None:
        """Print a result that contains foreign texts, without control characters."""
        if not text.isprintable():
            from tunec.compiler.diagnostics.terminal import printable_lines

            text = printable_lines(text)
        self.result(text)

    def write(self, text: str) -> None:
        """Print a result unchanged, even if it is empty; raise UnwritableOutput."""
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as fault:
            raise UnwritableOutput(fault.strerror) from None

    def json(self, data: Any) -> None:
        """Print a result as JSON."""
        self.result(json_text(data))

    def diagnose(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> None:
        """Print diagnostics; with --format json they are part of the result instead."""
        if self.format == "json":
            return
        for each in diagnostics:
            from tunec.compiler.diagnostics.terminal import render

            self.stderr.write(render(each, sources, color=is_colored(self.stderr)) + "\n")

    def refuse(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> int:
        """Report why there is no result, as text or JSON; return the exit code."""
        told = tuple(diagnostics)
        self.diagnose(told, sources)
        if self.format == "json":
            self.json({"diagnostics": [each.to_json() for each in told]})
        return INPUT

    def note(self, text: str) -> None:
        """Print a remark that is neither result nor diagnostic."""
        if not text.isprintable():
            from tunec.compiler.diagnostics.terminal import printable_lines

            text = printable_lines(text)
        self.stderr.write(text + "\n")


def is_colored(stream: TextIO) -> bool:
    """Whether a stream is a terminal with colors enabled (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def standard(registry: Registry, format: str) -> Session:
    """A session on the process's own streams."""
    draws = can_draw(getattr(sys.stdout, "encoding", None))
    return Session(registry, format, _open(sys.stdout), _open(sys.stderr), draws)


def can_draw(encoding: str | None) -> bool:
    """Whether an encoding has the characters of bars and trees."""
    try:
        "█▏░…".encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def _open(stream: TextIO | None) -> TextIO:
    """A stream in UTF-8, whatever the locale; one that the shell has closed discards its output.

    Bytes of a file name that are not text are escaped.
    """
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return stream


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a termination signal end the child processes, as Ctrl-C does, and then tunec."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if current_thread() is not main_thread():
        yield  # a server asks, which minds signals itself
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
