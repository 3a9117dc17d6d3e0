"""Write the JSON Schemas of trainers that are scripts in a repository, from the scripts.

`python -m tunec.targets.generate_script_schemas` rewrites them below `schemas/json`; with `--check`
it writes nothing and fails if one differs. If a script is unavailable it prints why and exits with
status 2.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Final

from tunec.compiler.consumers.environments import EnvironmentUnavailable
from tunec.targets.generate_schemas import FOLDER, text

MODULES: Final = ("glm4", "minicpm_v", "llama_cookbook", "visualglm")
"""The targets whose `schema` module defines `documents`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or with `--check` compare them; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tunec.targets.generate_script_schemas")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when a file is stale"
    )
    check = parser.parse_args(arguments).check
    try:
        texts = {path: text(content) for path, content in documents()}
    except EnvironmentUnavailable as unavailable:
        sys.stderr.write(f"not checked: {unavailable}\n")
        return 2
    stale = [path for path, content in texts.items() if _held(path) != content]
    for path in () if check else stale:
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(texts[path], encoding="utf-8")
    sys.stderr.writelines(f"{'stale' if check else 'written'}: {path}\n" for path in stale)
    return 1 if check and stale else 0


def documents() -> Iterator[tuple[str, Any]]:
    """The path below `schemas/json/` and the content of every schema.

    Raises EnvironmentUnavailable.
    """
    for name in MODULES:
        yield from import_module(f"tunec.targets.{name}.schema").documents()


def _held(path: str) -> str | None:
    file = FOLDER / path
    return file.read_text(encoding="utf-8") if file.exists() else None


if __name__ == "__main__":
    sys.exit(main())
