"""Completions at a cursor: keys, values and names, from the schemas and the catalogue."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from lsprotocol.types import CompletionItem, CompletionItemKind, MarkupContent, MarkupKind, TextEdit
from msgspec import Struct

from tunec.compiler.lints.edits import written
from tunec.compiler.lsp import dialect, names
from tunec.compiler.lsp.analysis import Analysis, Registry
from tunec.compiler.lsp.cursor import Cursor, cursors
from tunec.compiler.lsp.places import Text
from tunec.compiler.lsp.schema_walk import Field, Schemas, ours
from tunec.schemas.source import Path, Span

_FLAG: Final = re.compile(r"(?:^|\s)(--[\w.-]*)$")
_ARGUMENT: Final = re.compile(r"(?:^|[(,])\s*([A-Za-z_]\w*)$")
_PLAIN: Final = re.compile(r"[A-Za-z.][\w./-]*@[\w.]+|\.[\w./-]+")
"""Targets with versions, and paths, which YAML reads as text without quotes."""
_REST: Final = re.compile(r"""[\w./@-]*["']?""")
_BEGINNINGS: Final = ("tunec: 1", "fleet: 1", "policy: 1")
"""The first lines of tunec's own files: a spec, a fleet, a policy."""
_MAPPINGS: Final = frozenset({"mapping", "list"})


class _Place(Struct, frozen=True):
    """The place of a completion: the text that it replaces, and what comes after."""

    text: Text
    line: int
    start: int
    end: int
    format: str
    rest: str
    quote: str = ""
    """The quote that is written before the cursor, if any."""

    def item(self, new: str, label: str, field: Field | None, *, is_key: bool) -> CompletionItem:
        """An item that replaces what has been typed by `new`."""
        span = Span("", self.line, self.start, self.line, self.end)
        about = field.about if field is not None else ""
        return CompletionItem(
            label,
            kind=CompletionItemKind.Property if is_key else CompletionItemKind.Value,
            detail=field.type or None if field is not None else None,
            documentation=MarkupContent(MarkupKind.Markdown, about) if about else None,
            filter_text=f"{self.quote}{label}",
            sort_text=f"{'0' if field is not None and field.is_required else '1'}{label}",
            text_edit=TextEdit(self.text.range(span), new),
        )


def complete(
    analysis: Analysis, text: Text, line: int, column: int, registry: Registry
) -> list[CompletionItem]:
    """The completions at a place of a text, which may be newer than the analysis."""
    form = _format(analysis)
    if form in ("shell", "python"):
        return list(_arguments(analysis, text, line, column, form))
    found: dict[str, CompletionItem] = {}
    for cursor in cursors(text.text, text.offset(line, column), form):
        place = _place(text, line, column, cursor, form)
        if not analysis.is_known and form == "yaml" and text.text.strip() == cursor.word:
            return [place.item(each, each, None, is_key=True) for each in _BEGINNINGS]
        made = _keys(analysis, cursor, place, registry) if cursor.is_key else None
        for each in made or _values(analysis, cursor, place, registry):
            found.setdefault(each.label, each)
    return list(found.values())


def _format(analysis: Analysis) -> str:
    suffix = analysis.path.suffix.lower()
    if suffix in (".json", ".toml"):
        return suffix[1:]
    if suffix in (".yaml", ".yml"):
        return "yaml"
    return "python" if suffix == ".py" else "shell"


def _place(text: Text, line: int, column: int, cursor: Cursor, format: str) -> _Place:
    behind = text.lines[line - 1][column - 1 :]
    taken = _REST.match(behind)
    own = taken[0] if taken else ""
    if own.endswith(("'", '"')) and not cursor.word.startswith(("'", '"')):
        own = own[:-1]
    end = column + len(own)
    quote = cursor.word[:1] if cursor.word[:1] in ("'", '"') else ""
    return _Place(text, line, column - len(cursor.word), end, format, behind[len(own) :], quote)


def _keys(
    analysis: Analysis, cursor: Cursor, place: _Place, registry: Registry
) -> Iterator[CompletionItem]:
    fields = _fields(analysis, cursor.path)
    if analysis.kind is not None:
        named = names.known(names.KEYS, analysis.kind.name, cursor.path)
        if named is not None:
            word = cursor.word.strip("\"'")
            fields |= {n: Field(n, "", "") for n in named(analysis.path, word, registry)}
    here = _written_keys(analysis, cursor.path)
    for name, field in fields.items():
        if name not in here or name == cursor.word.strip("\"'"):
            yield place.item(_key(name, field, place), name, field, is_key=True)


def _fields(analysis: Analysis, path: Path) -> dict[str, Field]:
    if analysis.kind is not None:
        return Schemas.of(ours(analysis.kind.name), path).fields()
    found: dict[str, Field] = {}
    for run, document in dialect.documents(analysis):
        found |= dialect.fields(run, document, path)
    return found


def _written_keys(analysis: Analysis, path: Path) -> frozenset[str]:
    node = analysis.tree
    for part in path:
        node = node.child(part) if node is not None else None
    return frozenset(node.fields or ()) if node is not None else frozenset()


def _key(name: str, field: Field, place: _Place) -> str:
    sign = " = " if place.format == "toml" else ":"
    text = json.dumps(name) if place.format == "json" else name
    if place.format == "toml" and not re.fullmatch(r"[\w-]+", name):
        text = json.dumps(name)
    if place.rest.lstrip().startswith((":", "=")):
        return text
    is_block = field.type in _MAPPINGS and place.format == "yaml"
    return text + (sign if is_block or sign != ":" else ": ")


def _values(
    analysis: Analysis, cursor: Cursor, place: _Place, registry: Registry
) -> Iterator[CompletionItem]:
    known = _known_values(analysis, cursor.path)
    for words, value in known.items():
        yield place.item(_value(value, place), words.strip('"'), None, is_key=False)
    if analysis.kind is None:
        return
    named = names.known(names.VALUES, analysis.kind.name, cursor.path)
    word = cursor.word.strip("\"'")
    for each in named(analysis.path, word, registry) if named is not None else ():
        yield place.item(_value(each, place), each, None, is_key=False)


def _known_values(analysis: Analysis, path: Path) -> dict[str, Any]:
    if analysis.kind is not None:
        return Schemas.of(ours(analysis.kind.name), path).values()
    found: dict[str, Any] = {}
    for run, document in dialect.documents(analysis):
        found |= dialect.values(run, document, path)
    return found


def _value(value: Any, place: _Place) -> str:
    if place.quote == "'" and isinstance(value, str):
        return f"'{value}'"
    if place.quote or place.format == "toml":
        return json.dumps(value)
    if place.format == "yaml" and isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return written(value, place.format)


def _arguments(
    analysis: Analysis, text: Text, line: int, column: int, format: str
) -> Iterator[CompletionItem]:
    """Flags in a script, or keyword arguments of a call that is read as a config."""
    before = text.lines[line - 1][: column - 1]
    found = (_FLAG if format == "shell" else _ARGUMENT).search(before)
    if found is None:
        return
    start = found.start(1) + 1
    lead, end = ("--", "") if format == "shell" else ("", "=")
    place = _Place(text, line, start, column, format, "")
    for name, field in _flags(dialect.documents(analysis), format).items():
        yield place.item(f"{lead}{name}{end}", f"{lead}{name}", field, is_key=True)


def _flags(found: Iterable[tuple[Any, Any]], format: str) -> dict[str, Field]:
    every: dict[str, Field] = {}
    for run, document in found:
        if document.format == format:
            every |= dialect.fields(run, document, ())
    return every
