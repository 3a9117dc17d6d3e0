"""What the first record of training data holds, against what a trainer reads of it.

Data is passed on unchanged, and may lie where the run is. Of a file beside the spec, the first
record tells before the run what the trainer would fail at, or drop.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined, quoted
from tunec.compiler.frontend.disk import Unreadable
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.frontend.project import require_inside
from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import Target
from tunec.schemas.data_paths import FORMATS, Record, data_kind
from tunec.schemas.frozen import replace

_MOST: Final = 2**20
"""Bytes of a file in which its first record must end to be looked at."""
_SUFFIXES: Final = (".jsonl", ".json")


def unread_columns(loaded: Loaded, plan: Plan, target: Target) -> Iterator[Diagnostic]:
    """A warning for each training file beside the spec of whose records the target reads none."""
    known = target.records(plan)
    for path in dict.fromkeys(training_data(plan)) if known else ():
        record = _first(path, loaded.base)
        if record is None or any(_fits(each, record) for each in known):
            continue
        yield Diagnostic(
            "data-in-unread-columns",
            "warning",
            f"{target.name} reads {joined(map(_described, known), 'or')}, and the first record of "
            f"{path} has {quoted(list(record)[:12], 'and') or 'nothing'}",
            (Label("this data", path="data.train"),),
            help=_remedy(record, plan, target),
        )


def _remedy(record: Mapping[str, Any], plan: Plan, target: Target) -> str:
    """The format to name, where the target reads it, or what else there is to do."""
    for name, columns in FORMATS.items():
        said = replace(plan, data=replace(plan.data, format=None if name == "messages" else name))
        if _fits(columns, record) and _reads(target, said, record):
            return f"say what the records are: `format: {name}` under `data`"
    return "give the data these columns, or compile to a trainer that reads it as it is"


def _reads(target: Target, plan: Plan, record: Mapping[str, Any]) -> bool:
    """Whether a target can write the format of a plan, and takes a record of it."""
    cannot = target.cannot.get("data.format")
    is_refused = cannot is not None and cannot.refuses(plan.data.format)
    return not is_refused and any(_fits(each, record) for each in target.records(plan))


def _first(path: str, base: Path) -> Mapping[str, Any] | None:
    """The first record of a file below the spec's directory, as far as it can be read."""
    file = base / path
    if data_kind(path) != "file" or file.suffix.lower() not in _SUFFIXES:
        return None
    try:
        full = require_inside(file, base.resolve())
        if not full.is_file():
            return None
        with full.open(encoding="utf-8-sig") as opened:
            text = opened.read(_MOST).lstrip()
        found, _ = json.JSONDecoder().raw_decode(text.removeprefix("[").lstrip())
    except (Unreadable, OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _fits(known: Record, record: Mapping[str, Any]) -> bool:
    return all(_is_of(known.kind, record.get(each)) for each in known.columns)


def _is_of(kind: str, value: Any) -> bool:
    if kind == "text":
        return isinstance(value, str)
    if kind in _TURNS:
        is_list = isinstance(value, list) and len(value) > 0
        return is_list and all(isinstance(e, Mapping) and _TURNS[kind] in e for e in value)
    return value is not None


_TURNS: Final = {"chat": "role", "turns": "from"}
"""What names the speaker in each kind of conversation."""
_KINDS: Final = {
    "any": "",
    "chat": " as lists of messages with role and content",
    "turns": " as lists of turns with from and value",
    "text": " as texts",
}


def _described(known: Record) -> str:
    return f"{quoted(known.columns, 'with')}{_KINDS[known.kind]}"
