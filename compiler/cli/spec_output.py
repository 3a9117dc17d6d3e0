"""A spec that is made: the line that leads editors to its schema, and where both go."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Final

from tunec.compiler.cli.schema_command import schema
from tunec.compiler.cli.session import Misuse, Session
from tunec.compiler.writing import write_all

_SCHEMA: Final = "spec.schema.json"
"""The schema's file, beside a spec that is written."""


def modeline(output: Path | None) -> str:
    """The line at a spec's top that leads editors to its schema.

    That is the file beside a spec that is written. What goes to stdout has nothing beside it: there
    it is the schema of this installation.
    """
    return f"yaml-language-server: $schema={_installed() if output is None else _SCHEMA}"


def _installed() -> str:
    return Path(str(files("tunec.schemas") / "json" / "tunec" / "spec.json")).as_uri()


def refuse_existing(output: Path | None) -> None:
    """Raise Misuse where a spec is there already: what people have written stays."""
    if output is not None and output.exists():
        raise Misuse(f"{output} already exists")


def write_spec(output: Path, text: str, session: Session) -> None:
    """Write a spec, and the schema by which editors complete it."""
    known = json.dumps(schema("spec", session.registry.names()), indent=2, ensure_ascii=False)
    beside = output.parent / _SCHEMA
    write_all({output: text, beside: known + "\n"})
    session.note(f"written: {output}, {beside}; next: tunec plan {output}")
