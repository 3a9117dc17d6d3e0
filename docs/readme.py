"""README.md with what its commands print: all that stands below a `$` in a `console` block."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_CONSOLE: Final = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)


def readme() -> str:
    """README.md with what each of its commands prints."""
    return _CONSOLE.sub(_ran, (ROOT / "README.md").read_text("utf-8"))


def _ran(block: re.Match[str]) -> str:
    commands = (line for line in block[1].splitlines() if line.startswith("$ "))
    return "".join(f"{each}\n{_output(each[2:])}" for each in commands)


def _output(command: str) -> str:
    """What a command line prints, in the root of the repository, with this interpreter's tunec."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(  # noqa: S602  the commands are our README's own
        command,
        shell=True,
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.stdout.decode("utf-8")
