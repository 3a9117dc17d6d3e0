"""Compares the first record of training data with what a trainer reads.

Data is passed on unchanged, and may only exist where the run is. If a data file lies beside the
spec, its first record shows in advance what the trainer would refuse or drop; so do the known
columns of a public data set.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined, quoted
from tunec.compiler.frontend.disk import Unreadable
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.frontend.project import require_inside
from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import Target
from tunec.schemas.data_paths import FORMATS, Record, data_kind
from tunec.schemas.datasets.catalogue import Content, public_dataset
from tunec.schemas.frozen import replace
from tunec.schemas.terms import PLAIN_TEMPLATE

_MOST: Final = 2**20
"""Bytes within which the first record of a file must end to be examined."""
_LONGEST: Final = 250
"""Characters of a path; a longer text is an encoded image."""
_FOREIGN: Final = frozenset({"human", "gpt", "chatgpt", "bot"})
"""Speakers of ShareGPT's records, which are no roles of a chat template."""
_SUFFIXES: Final = (".jsonl", ".json")


def unread_columns(loaded: Loaded, plan: Plan, target: Target) -> Iterator[Diagnostic]:
    """A warning for each training file beside the spec whose records the target cannot read."""
    known = target.records(plan)
    for path in dict.fromkeys(training_data(plan)) if known else ():
        record = first_record(path, loaded.base)
        if record is None or any(_fits(each, record) for each in known):
            continue
        yield Diagnostic(
            "data-in-unread-columns",
            "warning",
            f"{target.name} reads {joined(map(_described, known), 'or')}, and the first record of "
            f"{path} has {quoted(list(record)[:12], 'and') or 'nothing'}",
            (Label("this data", path="data.train"),),
            tuple(filter(None, (each.why for each in known))),
            help=_remedy(record, plan, target),
        )


def _remedy(record: Mapping[str, Any], plan: Plan, target: Target) -> str:
    """The format to name if the target reads it, or another way out."""
    for name, columns in FORMATS.items():
        said = replace(plan, data=replace(plan.data, format=None if name == "messages" else name))
        if _fits(columns, record) and _reads(target, said, record):
            return f"write `format: {name}` under `data`, which says what the records are"
    return "give the data these columns, or compile to a trainer that reads it as it is"


def _reads(target: Target, plan: Plan, record: Mapping[str, Any]) -> bool:
    """Whether a target can write the plan's format and reads such a record."""
    cannot = target.cannot.get("data.format")
    is_refused = cannot is not None and cannot.refuses(plan.data.format)
    return not is_refused and any(_fits(each, record) for each in target.records(plan))


def foreign_speakers(loaded: Loaded, plan: Plan, target: Target) -> Iterator[Diagnostic]:
    """The fault of speakers whose names reach the chat template, which has other roles.

    A template of the spec's own is left alone, since it may have them.
    """
    known, template = target.records(plan), plan.data.chat_template
    if all(each.renames for each in known) or template not in (None, PLAIN_TEMPLATE):
        return
    for path in dict.fromkeys(training_data(plan)):
        named = _speakers(first_record(path, loaded.base) or {})
        foreign = [name for name in dict.fromkeys(named) if name in _FOREIGN]
        if foreign:
            yield Diagnostic(
                "E0808",
                "error",
                f"speakers in {path} are named {quoted(foreign, 'and')}, and {target.name} hands "
                "these names to the chat template, whose roles are user and assistant",
                (Label("these conversations", path="data.train"),),
                help="name them user and assistant in the data, or compile to a trainer that "
                "knows them: axolotl, llamafactory, ms-swift",
            )


def _speakers(record: Mapping[str, Any]) -> Iterator[Any]:
    """Who says each turn of the conversations in a record."""
    for turns in record.values():
        for each in turns if isinstance(turns, list) else ():
            if isinstance(each, Mapping):
                yield from (each[key] for key in _TURNS.values() if isinstance(each.get(key), str))


def unseen_pictures(loaded: Loaded, plan: Plan, target: Target) -> Iterator[Diagnostic]:
    """A warning for each training file whose images the target's program would not find.

    A relative path that is valid from the spec's directory, or from the data's, is invalid from the
    root of the bundle, where the run starts.
    """
    known = plan.data.images and target.records(plan)
    for path in dict.fromkeys(training_data(plan)) if known else ():
        named = next(_pictures(first_record(path, loaded.base) or {}), "")
        near = _is_there(loaded.base, PurePosixPath(path).parent / named)
        is_told = target.media.beside_data
        if named and not (is_told and near) and (near or _is_there(loaded.base, named)):
            start = "the data's folder" if is_told else "the bundle's folder, where run.sh starts"
            other = "as seen from there" if is_told else "hold them in the data, as Parquet does"
            yield Diagnostic(
                "pictures-out-of-sight",
                "warning",
                f"the first record of {path} names the picture {named}, for which {target.name} "
                f"looks from {start}",
                (Label("this data", path="data.train"),),
                help=f"name pictures by absolute paths, or {other}",
            )


def _is_there(base: Path, path: PurePosixPath | str) -> bool:
    """Whether a file exists below the spec's directory."""
    try:
        return require_inside(base / path, base.resolve()).is_file()
    except (Unreadable, OSError, ValueError):
        return False


def _pictures(record: Mapping[str, Any]) -> Iterator[str]:
    """Relative paths of images that a record names, in `images` or in its messages."""
    said = record.get("messages")
    parts = [
        part
        for each in (said if isinstance(said, list) else ())
        if isinstance(each, Mapping) and isinstance(each.get("content"), list)
        for part in each["content"]
        if isinstance(part, Mapping)
    ]
    held = record.get("images") or record.get("image") or ()
    listed = held if isinstance(held, list) else [held]
    for each in (*listed, *(part.get("image") or part.get("path") for part in parts)):
        name = each.get("path") if isinstance(each, Mapping) else each
        if isinstance(name, str) and len(name) < _LONGEST and _is_relative(name):
            yield name


def _is_relative(name: str) -> bool:
    return "://" not in name and not name.startswith(("/", "~", "data:")) and "\0" not in name


def first_record(path: str, base: Path) -> Mapping[str, Any] | None:
    """The first record of a file below the spec's directory, or one as a public data set has.

    None if the file cannot be read, or the data set's columns are not known.
    """
    known = public_dataset(path)
    if known is not None:
        return {name: _LIKE[kind] for name, kind in known.columns.items()} or None
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


_LIKE: Final[Mapping[Content, Any]] = {
    "text": "a text",
    "texts": ["a text"],
    "chat": [{"role": "user", "content": "asks"}, {"role": "assistant", "content": "answers"}],
    "sharegpt": [{"from": "human", "value": "asks"}, {"from": "gpt", "value": "answers"}],
    "turns": [{"from": "", "value": "asks"}, {"from": "", "value": "answers"}],
    "image": {},
    "images": [{}],
    "audio": {},
    "number": 1,
    "bool": True,
    "other": {},
}
"""A value like those of a column; who speaks in `turns` is not known."""


def is_conversation(record: Mapping[str, Any]) -> bool:
    """Whether a record holds turns of several speakers."""
    return any(_is_of(kind, each) for each in record.values() for kind in _TURNS)


def _fits(known: Record, record: Mapping[str, Any]) -> bool:
    held = all(_is_of(known.kind, record.get(each)) for each in known.columns)
    return held and all(_is_of("text", record.get(each)) for each in known.texts)


def _is_of(kind: str, value: Any) -> bool:
    if kind == "text":
        return isinstance(value, str)
    if kind in _TURNS:
        least = _LEAST_TURNS if kind == "dialogue" else 1
        is_list = isinstance(value, list) and len(value) >= least
        return is_list and all(isinstance(e, Mapping) and _TURNS[kind] in e for e in value)
    return value is not None


_TURNS: Final = {"chat": "role", "dialogue": "role", "turns": "from"}
"""The key that names the speaker in each kind of conversation."""
_LEAST_TURNS: Final = 2
"""Of a dialogue: what is asked, and the answer."""
_KINDS: Final = {
    "any": "",
    "chat": " as lists of messages with role and content",
    "dialogue": " as lists of messages from the first question to the answer",
    "turns": " as lists of turns with from and value",
    "text": " as texts",
}


def _described(known: Record) -> str:
    beside = f", beside {quoted(known.texts, 'and')} as texts" if known.texts else ""
    return f"{quoted(known.columns, 'with')}{_KINDS[known.kind]}{beside}"
