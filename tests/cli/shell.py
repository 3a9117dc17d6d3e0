"""The command line as a test calls it: arguments in, exit code and both streams out."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tunec.compiler.cli.main import run
from tunec.targets.registry import REGISTRY

EXAMPLES = Path(__file__).parents[2] / "examples"
FIVE = str(EXAMPLES / "five-lines/spec.yaml")
GLM = str(EXAMPLES / "glm-4v-9b-lora/spec.yaml")
MIXED = str(EXAMPLES / "llama-3.2-3b-mixed-gpus/spec.yaml")
INFEASIBLE = str(EXAMPLES / "visualglm-6b-p100/spec.yaml")


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


class Shell:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str | Path) -> Result:
        """Run one command; argparse's own exit counts as an exit code."""
        self.capsys.readouterr()
        try:
            code = run([str(each) for each in arguments], REGISTRY, "0.1.0")
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err, err
        return Result(code, out, err)


def files_below(folder: Path) -> list[str]:
    """Every file below a folder, relative, sorted."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
