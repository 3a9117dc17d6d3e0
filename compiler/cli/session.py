"""One run of the command line: where results and diagnostics go, and which targets there are."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TextIO

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.target import Target
from tunec.schemas.frozen import dataclass

OK, INPUT, USAGE, BUG = 0, 1, 2, 70
"""Exit codes: fine, the input is at fault, wrong usage, a bug in tunec."""


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


@dataclass(frozen=True, slots=True)
class Session:
    """Streams, and the choice between text and JSON."""

    registry: Registry
    format: str
    stdout: TextIO
    stderr: TextIO

    def result(self, text: str) -> None:
        """Print a result."""
        self.stdout.write(text if text.endswith("\n") else text + "\n")

    def json(self, data: Any) -> None:
        """Print a result as JSON."""
        self.result(json.dumps(data, indent=2, ensure_ascii=False))

    def diagnose(self, diagnostics: Iterable[Diagnostic], sources: Mapping[str, str]) -> None:
        """Print diagnostics for people; with --format json they are part of the result."""
        if self.format == "json":
            return
        for each in diagnostics:
            from tunec.compiler.diagnostics.terminal import render

            color = self.stderr.isatty()
            self.stderr.write(render(each, sources, color=color) + "\n")

    def note(self, text: str) -> None:
        """Say something that is neither result nor diagnostic."""
        self.stderr.write(text + "\n")


def standard(registry: Registry, format: str) -> Session:
    """A session on the process's own streams."""
    return Session(registry, format, sys.stdout, sys.stderr)
