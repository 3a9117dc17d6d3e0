"""README.md with the output of its commands: the text below each `$` in a `console` block."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_CONSOLE: Final = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
_COMMAND: Final = re.compile(r"^(\$ .*\n)((?:(?!\$ ).*\n)*)", re.MULTILINE)
_SHOWN: Final = "error["
"""The mark of a text that shows how tunec refuses something: its command exits with status 1."""


class CommandFailed(Exception):
    """A command of README.md fails, and the text below the command shows no error."""


def readme(text: str | None = None) -> str:
    """README.md with the output of each of its commands, which run in parallel.

    Raises CommandFailed with the output of the first command that fails, which belongs in no
    README.
    """
    text = (ROOT / "README.md").read_text("utf-8") if text is None else text
    shown = [each for block in _CONSOLE.findall(text) for each in _commands(block)]
    with ThreadPoolExecutor() as pool:
        printed = dict(zip(shown, pool.map(_output, shown), strict=True))
    return _CONSOLE.sub(
        lambda block: "".join(each[0] + printed[each] for each in _commands(block[1])), text
    )


def _commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command's line, and the text below it."""
    return ((found[1], found[2]) for found in _COMMAND.finditer(block))


def _output(shown: tuple[str, str]) -> str:
    """The output of a command in the root of the repository, with this interpreter's tunec."""
    line, before = shown
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(  # noqa: S602  the commands are our README's own
        f"set -o pipefail\n{line.removeprefix('$ ')}",
        shell=True,
        executable="/bin/bash",
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    text = done.stdout.decode("utf-8")
    if done.returncode not in ((0, 1) if _SHOWN in before else (0,)):
        raise CommandFailed(f"README.md: status {done.returncode}: {line}{text}")
    return text
