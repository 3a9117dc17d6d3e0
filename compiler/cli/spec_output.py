"""Writes a generated spec, with its schema and the line that points editors to it."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Final

from tunec.compiler.cli.schema_command import schema
from tunec.compiler.cli.session import Misuse, Session
from tunec.compiler.writing import write_all

_SCHEMA: Final = "spec.schema.json"
"""The name of the schema's file, beside a written spec."""


def modeline(output: Path | None) -> str:
    """The first line of a spec, which points editors to its schema.

    The schema is the file beside a written spec. On stdout there is no such file, so the line
    points to the schema of this installation.
    """
    return f"yaml-language-server: $schema={_installed() if output is None else _SCHEMA}"


def _installed() -> str:
    return Path(str(files("tunec.schemas") / "json" / "tunec" / "spec.json")).as_uri()


def refuse_existing(output: Path | None) -> None:
    """Raise Misuse if the spec exists already: what people have written stays."""
    if output is not None and output.exists():
        raise Misuse(f"{output} already exists")


def write_spec(output: Path, text: str, session: Session) -> None:
    """Write a spec, and the schema that editors use for completion."""
    known = json.dumps(schema("spec", session.registry.names()), indent=2, ensure_ascii=False)
    beside = output.parent / _SCHEMA
    write_all({output: text, beside: known + "\n"})
    session.note(f"written: {output}, {beside}; next: tunec plan {output}")
