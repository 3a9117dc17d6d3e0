"""Paths of this machine in questions and answers: named when they are kept, put back when told."""

import re
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tunec.compiler.consumers.environments import Environment, default_cache

ROOT: Final = Path(__file__).parents[2]
_TEMPORARY: Final = re.compile(
    rf"{re.escape(tempfile.gettempdir())}/(?:pytest-of-\w+/pytest-\d+(?:/popen-gw\d+)?|[\w.-]+)"
)
"""A folder that a test or a program made for itself; names that are random are not kept."""
_NAMELESS: Final = (
    (re.compile(r"\b0x[0-9a-f]{8,}\b"), "«address»"),
    # transformers training_args.py `default_logdir`: when the run began, and on which machine
    (
        re.compile(rf"\b[A-Z][a-z]{{2}}\d\d_\d\d-\d\d-\d\d_{re.escape(socket.gethostname())}"),
        "«time and host»",
    ),
    # ms-swift utils/utils.py `add_version_to_work_dir`: a folder of its own for each run
    (re.compile(r"\bv\d+-\d{8}-\d{6}\b"), "«version and time»"),
)
"""What is of one run alone: nothing may rest on it, and it is not put back."""


class Places:
    """The names of the paths that one question and its answer speak of."""

    def __init__(self, environment: Environment) -> None:
        self._known = {str(environment.place): "«environment»", **_known()}
        self._temporary: dict[str, str] = {}

    def named(self, text: str) -> str:
        """The text with a name for each path of this machine."""
        for path, name in self._known.items():
            text = text.replace(path, name)
        for pattern, name in _NAMELESS:
            text = pattern.sub(name, text)
        return _TEMPORARY.sub(self._numbered, text)

    def _numbered(self, found: re.Match[str]) -> str:
        name = f"«temporary {len(self._temporary) + 1}»"
        return self._temporary.setdefault(found[0], name)

    def put_back(self, text: str) -> str:
        """The text with this machine's paths, where their names are known."""
        for path, name in {**self._known, **self._temporary}.items():
            text = text.replace(name, path)
        return text


@cache
def _known() -> Mapping[str, str]:
    """Paths that every answer may hold; those inside others first."""
    library = sysconfig.get_paths()
    return {
        str(default_cache().parent): "«cache»",
        library["purelib"]: "«packages»",
        library["stdlib"]: "«library»",
        str(ROOT): "«repository»",
        sys.prefix: "«prefix»",
        sys.base_prefix + "/bin": "«programs»",
        str(Path.home()): "«home»",
    }
