"""README.md with what its commands print: all that stands below a `$` in a `console` block."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_CONSOLE: Final = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)


def readme() -> str:
    """README.md with what each of its commands prints; they run beside each other."""
    text = (ROOT / "README.md").read_text("utf-8")
    lines = [line for block in _CONSOLE.findall(text) for line in _commands(block)]
    with ThreadPoolExecutor() as pool:
        printed = dict(zip(lines, pool.map(_output, lines), strict=True))
    return _CONSOLE.sub(
        lambda block: "".join(f"{line}\n{printed[line]}" for line in _commands(block[1])), text
    )


def _commands(block: str) -> list[str]:
    return [line for line in block.splitlines() if line.startswith("$ ")]


def _output(line: str) -> str:
    """What a line's command prints in the root of the repository, with this interpreter's tunec."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(  # noqa: S602  the commands are our README's own
        line.removeprefix("$ "),
        shell=True,
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.stdout.decode("utf-8")
