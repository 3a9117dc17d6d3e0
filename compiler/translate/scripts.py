"""Scripts that only their own target can parse: a trainer's command line, an older env file.

`tunec lint` reads a script's launcher and flags by their names. A target whose file is a script has
its own parser for it, which knows the flags of its one program.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.emit import schema
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.formats import parse_text
from tunec.compiler.lints.kinds import LEAST_SHARE, kind_of
from tunec.compiler.read import WRONG_SHAPE, found_plain
from tunec.compiler.target import File, Target
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span

_FLAGS: Final = "flags"
_ANYBODYS: Final = ("launch", "launchers")
"""Tables of launch scripts, for any program."""


def with_own_scripts(
    documents: Iterable[Document], targets: Mapping[str, Target], readers: Iterable[str]
) -> tuple[Document, ...]:
    """The documents, with scripts read by their own target if there is one."""
    every = tuple(documents)
    texts = {each.name: each.text for each in every if each.format == "shell"}
    first = [targets[name] for name in readers if name in targets]
    others = [table for name, table in targets.items() if name not in _ANYBODYS]
    found: dict[str, tuple[Document, ...]] = {}
    for name, text in texts.items():
        mine = tuple(each for each in every if each.name == name)
        tables = dict.fromkeys(table.name for table in (*first, *others))
        own = (_own(targets[each], mine, text) for each in tables if each not in _ANYBODYS)
        found[name] = next(filter(None, own), ())
    kept = (each for each in every if not found.get(each.name))
    return (*kept, *(document for own in found.values() for document in own))


def _own(table: Target, documents: tuple[Document, ...], text: str) -> tuple[Document, ...]:
    """The documents of a script as files of one target."""
    read = ((file, _parsed(table, file, text)) for file in table.files)
    return tuple(
        _document(table, file, values, documents) for file, values in read if values is not None
    )


def _parsed(table: Target, file: File, text: str) -> Mapping[str, Any] | None:
    """The script as a file of a target, if it is one."""
    if file.format not in ("shell", "env") or file.parse is None:
        return None
    try:
        values = file.parse(text)
        is_one = isinstance(values, Mapping) and file.recognise(values)
        return values if is_one and _has_keys_of(table, file, values) else None
    except WRONG_SHAPE:
        return None


def _has_keys_of(table: Target, file: File, values: Mapping[str, Any]) -> bool:
    """Whether most flags are those of the file's program, as programs share some names."""
    every = found_plain(values).items()
    flags = {key: each.value for key, each in every if key.startswith(f"{_FLAGS}.")}
    given = [key for key, each in flags.items() if not isinstance(each, Mapping)]
    known = {key for entry in file.entries for key in entry.keys}
    known.update((each.old for each in file.leaves), _flags_of(table, file))
    return sum(key in known for key in given) >= LEAST_SHARE * len(given)


def _flags_of(table: Target, file: File) -> Iterator[str]:
    """The flags in the program's own schema of the newest release, by dotted path."""
    if file.block is not None:
        name, schema_of = file.block
        path = schema_of(table.dialect(table.release(table.latest)))
        yield from _leaves(name, schema(path)) if path is not None else ()


def _leaves(path: str, field: Mapping[str, Any]) -> Iterator[str]:
    inside = field.get("properties")
    if inside is None:
        yield path
        return
    for key, each in inside.items():
        yield from _leaves(f"{path}.{key}", each)


def _document(
    table: Target, file: File, values: Mapping[str, Any], documents: tuple[Document, ...]
) -> Document:
    """The parsed values with the places of the same words, unknown flags included."""
    parts, _ = parse_text(documents[0].name, documents[0].text)
    known = {key: node for each in parts for key, node in (each.root.fields or {}).items()}
    known |= {path: each.node for one in documents for path, each in one.found.items()}
    hidden = {key for one in documents for key in one.unknown}
    hidden |= {key for one in parts for key in one.unknown}
    given = found_plain(values).keys()
    unknown = frozenset(given & {path for key in hidden for path in (key, f"{_FLAGS}.{key}")})
    start = documents[0].start()
    root = _node(values, "", known, Node(start), unknown)
    return replace(
        documents[0],
        kind=kind_of(table, file),
        root=root,
        target=table,
        file=file,
        unknown=unknown,
    )


def _node(
    value: Any, path: str, known: Mapping[str, Node], around: Node, unknown: frozenset[str]
) -> Node:
    """Parsed data as a tree: each value at the place of its key, or of its parent."""
    here = known.get(path) or known.get(path.removeprefix(f"{_FLAGS}.")) or around
    span = Span(*_place(here))
    if isinstance(value, Mapping):
        inside = {str(key): (f"{path}.{key}" if path else str(key)) for key in value}
        fields = {
            key: _node(value[key], at, known, here, unknown)
            for key, at in inside.items()
            if key in value and at not in unknown
        }
        return Node(span, key_span=here.key_span or span, fields=fields)
    if isinstance(value, list | tuple):
        items = tuple(Node(span, each) for each in value)
        return Node(span, key_span=here.key_span or span, items=items)
    return Node(span, value, here.key_span or span)


def _place(node: Node) -> tuple[str, int, int, int, int]:
    at = node.key_span or node.span
    return at.file, at.line, at.column, at.end_line, at.end_column
