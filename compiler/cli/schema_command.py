"""`tunec schema`: JSON Schemas of what tunec reads."""

import json
from argparse import Namespace
from collections.abc import Iterable
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tunec.compiler.cli.session import OK, Misuse, Session
from tunec.compiler.writing import write_all
from tunec.schemas.hardware.catalogue import hardware_names
from tunec.schemas.models.catalogue import card_names


def run(options: Namespace, session: Session) -> int:
    """Print one schema, as generated."""
    if options.kind not in known():
        raise Misuse(f"there is no schema {options.kind!r}; there are {', '.join(known())}")
    found = schema(options.kind, session.registry.names())
    if options.output is None:
        session.json(found)
    else:
        write_all({Path(options.output): json.dumps(found, indent=2, ensure_ascii=False) + "\n"})
    return OK


def schema(kind: str, targets: Iterable[str]) -> dict[str, Any]:
    """One schema as generated; the spec's also lists names for editors to suggest."""
    found: dict[str, Any] = json.loads((_folder() / f"{kind}.json").read_text("utf-8"))
    if kind == "spec":
        for name in ("Spec", "PartSpec"):
            _offer_names(found["$defs"][name]["properties"], targets)
    return found


def _offer_names(fields: dict[str, Any], targets: Iterable[str]) -> None:
    """Add the known names to the values of a field that accepts any text."""
    fields["model"]["anyOf"].insert(0, {"enum": list(card_names())})
    fields["hardware"]["anyOf"].insert(0, {"enum": list(hardware_names())})
    listed = fields["targets"]
    for each in (listed, *listed.get("anyOf", ())):
        if "items" in each:
            each["items"] = {"anyOf": [{"enum": list(targets)}, each["items"]]}


def known() -> list[str]:
    """The kinds of files that have a schema."""
    return sorted(each.name.removesuffix(".json") for each in _folder().iterdir())


def _folder() -> Traversable:
    return files("tunec.schemas") / "json" / "tunec"
