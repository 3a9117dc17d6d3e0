"""A bundle that is written, and programs that note how they are called instead of running."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tunec

PROGRAMS = (
    *("python", "torchrun", "deepspeed", "accelerate"),
    *("sbatch", "sky", "kubectl", "simpletuner"),
)
NOTES = """\
#!{python}
import json, os, sys
with open({file!r}, "a") as file:
    json.dump({{"program": os.path.basename(sys.argv[0]), "words": sys.argv[1:],
               "folder": os.getcwd(), "environment": dict(os.environ)}}, file)
    file.write("\\n")
"""


@dataclass(frozen=True)
class Called:
    """One call of a program: its name, its words, and the directory it was called in."""

    program: str
    words: list[str]
    folder: Path
    environment: Mapping[str, str]

    def sees(self, path: str) -> bool:
        """Whether a path leads to a file from where the program works."""
        return (self.folder / path).is_file()


@dataclass(frozen=True)
class Written:
    """A bundle on disk."""

    root: Path
    compiled: "tunec.Compiled"
    stubs: Path

    def text(self, path: str) -> str:
        return (self.root / path).read_text("utf-8")

    def start(self, *arguments: str, folder: Path | None = None) -> Called:
        """Run run.sh with bash; what it calls in the end notes how, and does nothing."""
        notes = self.stubs / "notes"
        notes.unlink(missing_ok=True)
        self.run(*arguments, folder=folder)
        (line,) = notes.read_text("utf-8").splitlines()
        found = json.loads(line)
        return Called(**{**found, "folder": Path(found["folder"])})

    def run(self, *arguments: str, folder: Path | None = None) -> None:
        """Run run.sh with bash to its end, which must be a silent one."""
        environment = {**os.environ, "PATH": f"{self.stubs}:{os.environ['PATH']}", "CDPATH": "/"}
        done = subprocess.run(
            ["bash", os.path.relpath(self.root / "run.sh", folder or self.root), *arguments],
            cwd=folder or self.root,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def write(tmp_path) -> Callable[..., Written]:
    """Compiles a spec to a bundle and writes it."""
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for name in PROGRAMS:
        stub = stubs / name
        stub.write_text(NOTES.format(python=sys.executable, file=str(stubs / "notes")), "utf-8")
        stub.chmod(0o755)

    def write(spec: Mapping[str, Any], *targets: str, below: str = "out") -> Written:
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        (home / "spec.yaml").write_text(json.dumps(spec), "utf-8")
        root = home / below
        compiled = tunec.compile(home / "spec.yaml", targets=targets, output=root)
        assert compiled.ok, [each.message for each in compiled.diagnostics]
        for path, text in compiled.texts().items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, "utf-8")
        return Written(root, compiled, stubs)

    return write
