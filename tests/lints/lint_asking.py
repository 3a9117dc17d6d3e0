"""Asking `tunec lint` as a person would, in a folder of its own."""

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunec.compiler.cli.main import run
from tunec.targets.registry import REGISTRY

JSON = ("--format", "json")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the command line said."""

    code: int
    out: str
    err: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The diagnostics of `--format json`."""
        found: list[dict[str, Any]] = json.loads(self.out)
        return found

    @property
    def names(self) -> list[str]:
        """Their names, in order."""
        return [each["id"] for each in self.findings]


def lint(folder: Path, files: Mapping[str, str], arguments: Sequence[str]) -> Answer:
    """Write files into a folder and run `tunec lint` there, with JSON unless a format is given."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="")
    return ask(folder, "lint", *arguments, *(() if "--format" in arguments else JSON))


def ask(folder: Path, *words: str) -> Answer:
    """Run a command of `tunec` in a folder."""
    out, err = io.StringIO(), io.StringIO()
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        code = run([*words], REGISTRY, "0")
    return Answer(code, out.getvalue(), err.getvalue())
