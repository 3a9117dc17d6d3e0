"""Questions to ShellCheck."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

Answer = dict[str, Any]

_SECONDS: Final = 60.0


def shellcheck(question: Mapping[str, Any]) -> Answer:
    """The findings of ShellCheck in `text`, of every severity, each as `line: code message`."""
    beside = Path(sys.executable).with_name("shellcheck")
    program = str(beside) if beside.exists() else shutil.which("shellcheck")
    if program is None:
        raise FileNotFoundError("there is no shellcheck in this environment")
    version = re.search(r"^version: (\S+)", _run(program, "--version"), re.MULTILINE)
    found = json.loads(_run(program, "--norc", "--format=json", "-", text=question["text"]))
    said = [f"line {each['line']}: SC{each['code']} {each['message']}" for each in found]
    return {"version": version[1] if version else "", "found": said}


def _run(program: str, *arguments: str, text: str = "") -> str:
    """The program's output; its status is 1 if there are findings."""
    done = subprocess.run(  # noqa: S603
        [program, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode > 1:
        raise RuntimeError(done.stderr.strip() or f"status {done.returncode}")
    return done.stdout
