"""`tunec schema`: JSON Schemas of what tunec reads."""

import json
from argparse import Namespace
from importlib.resources import files
from importlib.resources.abc import Traversable

from tunec.compiler.cli.session import OK, Misuse, Session


def run(options: Namespace, session: Session) -> int:
    """Print one schema, as generated."""
    if options.kind not in known():
        raise Misuse(f"there is no schema {options.kind!r}; there are {', '.join(known())}")
    session.json(json.loads((_folder() / f"{options.kind}.json").read_text("utf-8")))
    return OK


def known() -> list[str]:
    """What has a schema."""
    return sorted(each.name.removesuffix(".json") for each in _folder().iterdir())


def _folder() -> Traversable:
    return files("tunec.schemas") / "json" / "tunec"
