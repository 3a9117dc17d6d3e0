"""YAML text to nodes, from the parser's events, so that nothing is built before it is checked."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import yaml
from msgspec import Struct, field
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
)

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend import document_faults as faults
from tunec.compiler.frontend import yaml_scalars as scalars
from tunec.compiler.frontend.nodes import MAX_DEPTH, MAX_NODES, Node
from tunec.compiler.frontend.text import Origin, yaml_lines, yaml_origin
from tunec.compiler.frontend.yaml_syntax import explain
from tunec.schemas.frozen import replace
from tunec.schemas.source import Path, Span

_PROPERTIES: Final = re.compile(r"((?:[&!][^\s,\[\]{}]*)(?:[ \t]+[&!][^\s,\[\]{}]*)*)[ \t]*")
"""Tag and anchor before a value (YAML 1.1, 6.9)."""
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(
    text: str, origin: Origin, *, core_schema: bool
) -> tuple[Node | None, tuple[Diagnostic, ...]]:
    """Read one YAML document; an empty one is a null.

    Raises nothing: the tree is None if the syntax stops it, and every fault is returned.
    """
    origin = yaml_origin(text, origin)
    builder = _Builder(origin, core_schema, yaml_lines(text))
    try:
        builder.read(yaml.parse(text, Loader=_LOADER))
    except _Stop as stop:
        return None, (*builder.faults, stop.fault)
    except yaml.YAMLError as problem:
        return None, (*builder.faults, explain(problem, text, origin))
    root = builder.root or Node(origin.span((0, 0), (0, 0)))
    return root, tuple(builder.faults)


_HISTOGRAM: Final = ("data", "lengths")
"""The field of a spec with numbers as keys: the number of samples for each number of tokens."""


class _Stop(Exception):
    """A fault after which the rest of the document is not read."""

    def __init__(self, fault: Diagnostic) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Pair(Struct):
    """A key that waits for its value. `name` is None for a key that is not text."""

    name: str | None
    span: Span
    merge: bool = False


class _Open(Struct):
    """A collection being read: its size and height include those of its aliases' targets."""

    start: Span
    mapping: bool
    anchor: str | None
    flow: bool
    last: Span
    size: int = 1
    height: int = 1
    key: _Pair | None = None
    own: dict[str, Node] = field(default_factory=dict)
    merged: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Span] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    is_key: bool = False
    """Whether the whole collection is in the place of a key."""


class _Anchored(Struct, frozen=True):
    node: Node
    size: int
    height: int


class _Builder(Struct):
    """Turns events into nodes; one per document."""

    origin: Origin
    core_schema: bool
    lines: list[str]
    faults: list[Diagnostic] = field(default_factory=list)
    root: Node | None = None
    total: int = 0
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, _Anchored | None] = field(default_factory=dict)

    def read(self, events: Iterable[Event]) -> None:
        """Process every event of the stream."""
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _Stop(faults.second_document(self._span(event)))
            elif isinstance(event, NodeEvent):
                self._node(event)
            elif isinstance(event, CollectionEndEvent):
                self._close(event)

    def _node(self, event: NodeEvent) -> None:
        if isinstance(event, AliasEvent):
            self._alias(event)
        elif isinstance(event, ScalarEvent):
            self._scalar(event)
        elif isinstance(event, CollectionStartEvent):
            self._open(event)

    # ── leaves ───────────────────────────────────────────────────────────────────────────────────

    def _scalar(self, event: ScalarEvent) -> None:
        span, properties = self._spans(event)
        tag = self._tag(event, properties)
        node = Node(span, self._value(tag, event.value, span), written=_written(event))
        if event.anchor:
            self._fresh_anchor(event.anchor, properties)
            self.anchors[event.anchor] = _Anchored(node, 1, 0)
        self._add(node, size=1, height=0, merge=tag == scalars.MERGE)

    def _tag(self, event: ScalarEvent, span: Span) -> str:
        if event.tag not in (None, "!"):
            return self._written_tag(str(event.tag), span, leaf=True)
        if not event.implicit[0]:
            return scalars.STR
        tag = scalars.resolve(event.value, core_schema=self.core_schema)
        if tag == scalars.MERGE and not self._at_key():
            return scalars.STR if self.core_schema else scalars.VALUE
        return tag

    def _at_key(self) -> bool:
        return bool(self.stack) and self.stack[-1].mapping and self.stack[-1].key is None

    def _value(self, tag: str, text: str, span: Span) -> Any:
        try:
            _refuse_surrogates(text)
            return scalars.construct(tag, text, core_schema=self.core_schema)
        except (ValueError, ArithmeticError, LookupError) as problem:
            kind = tag.rpartition(":")[2]
            self.faults.append(faults.unreadable(text, kind, str(problem), span, self._path()))
            return text.encode("utf-8", "replace").decode()

    def _written_tag(self, tag: str, span: Span, *, leaf: bool) -> str:
        kinds = scalars.CORE_TAGS - {scalars.MAP, scalars.SEQ}
        if tag in (kinds if leaf else {scalars.MAP, scalars.SEQ}):
            return tag
        self.faults.append(faults.tag(tag, span, self._path()))
        return scalars.STR

    # ── collections ──────────────────────────────────────────────────────────────────────────────

    def _open(self, event: CollectionStartEvent) -> None:
        span, properties = self._spans(event)
        if len(self.stack) >= MAX_DEPTH:
            raise _Stop(faults.too_deep(MAX_DEPTH, span))
        mapping = isinstance(event, MappingStartEvent)
        if event.tag not in (None, "!"):
            self._written_tag(str(event.tag), properties, leaf=False)
        if event.anchor:
            self._fresh_anchor(event.anchor, properties)
            self.anchors[event.anchor] = None
        self._count(1, span)
        opened = _Open(span, mapping, event.anchor, bool(event.flow_style), span)
        parent = self.stack[-1] if self.stack else None
        opened.is_key = parent is not None and parent.mapping and parent.key is None
        self.stack.append(opened)

    def _close(self, event: Event) -> None:
        done = self.stack.pop()
        end = self._span(event) if done.flow else done.last
        span = replace(done.start, end_line=end.end_line, end_column=end.end_column)
        if done.mapping:
            node = Node(span, fields={**done.merged, **done.own})
        else:
            node = Node(span, items=tuple(done.items))
        if done.anchor:
            self.anchors[done.anchor] = _Anchored(node, done.size, done.height)
        self._attach(node, done.size, done.height)

    def _alias(self, event: AliasEvent) -> None:
        span = self._span(event)
        name = str(event.anchor)
        if name not in self.anchors:
            raise _Stop(faults.unknown_anchor(name, span, self.anchors))
        found = self.anchors[name]
        if found is None:
            raise _Stop(faults.circular_alias(name, span))
        if len(self.stack) + found.height > MAX_DEPTH:
            raise _Stop(faults.too_deep(MAX_DEPTH, span))
        self._add(found.node, found.size, found.height, at=span)

    # ── placing ──────────────────────────────────────────────────────────────────────────────────

    def _add(
        self, node: Node, size: int, height: int, *, merge: bool = False, at: Span | None = None
    ) -> None:
        """Place a leaf or an alias; `at` is the place of the alias."""
        self._count(size, at or node.span)
        self._attach(node, size, height, merge=merge, at=at)

    def _attach(
        self, node: Node, size: int, height: int, *, merge: bool = False, at: Span | None = None
    ) -> None:
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        parent.size += size
        parent.height = max(parent.height, height + 1)
        parent.last = at or node.span
        if not parent.mapping:
            parent.items.append(replace(node, key_span=None))
        elif parent.key is None:
            parent.key = self._key(parent, node, at or node.span, merge=merge)
        else:
            self._pair(parent, parent.key, node)
            parent.key = None

    def _key(self, parent: _Open, node: Node, span: Span, *, merge: bool) -> _Pair:
        if not node.is_leaf or not (isinstance(node.value, str) or self._is_number(node)):
            self.faults.append(self._not_text(node, span))
            return _Pair(node.written if node.is_leaf else None, span)
        name = node.value if isinstance(node.value, str) else node.written or ""
        first = parent.keys.setdefault(name, span)
        if first is not span:
            self.faults.append(faults.duplicate_key(name, first, span, (*self._path(), name)))
        return _Pair(name, span, merge)

    def _is_number(self, node: Node) -> bool:
        """Whether a key is a whole number where one is allowed.

        Files of other programs have them (`max_memory`), and so does a histogram.
        """
        may = not self.core_schema or self._path() == _HISTOGRAM
        return may and type(node.value) is int

    def _not_text(self, node: Node, span: Span) -> Diagnostic:
        if not node.is_leaf:
            return faults.collection_as_key(span, self._path())
        dialect = "YAML 1.2" if self.core_schema else "YAML 1.1"
        return faults.key_not_text(node.written or "", node.value, dialect, span, self._path())

    def _pair(self, parent: _Open, key: _Pair, node: Node) -> None:
        if key.merge:
            parent.merged.update(self._merge(node, key.span))
        elif key.name is not None:
            parent.own[key.name] = replace(node, key_span=key.span)

    def _merge(self, node: Node, span: Span) -> Mapping[str, Node]:
        """The fields a merge key brings in (yaml.org/type/merge): earlier mappings win."""
        sources = node.items if node.items is not None else (node,)
        if any(source.fields is None for source in sources):
            self.faults.append(faults.merge_of_no_mapping(span, self._path()))
            return {}
        merged: dict[str, Node] = {}
        for source in reversed(sources):
            merged.update(source.fields or {})
        return merged

    # ── where and how much ───────────────────────────────────────────────────────────────────────

    def _count(self, size: int, span: Span) -> None:
        self.total += size
        if self.total > MAX_NODES:
            raise _Stop(faults.too_many_values(MAX_NODES, span))

    def _span(self, event: Event) -> Span:
        start, end = _place(event.start_mark), _place(event.end_mark)
        if isinstance(event, CollectionStartEvent):
            end = (start[0], start[1] + 1)
        return self.origin.span(start, end)

    def _spans(self, event: NodeEvent) -> tuple[Span, Span]:
        """The span of a value, and that of the tag and anchor before it, if it has any."""
        span = self._span(event)
        tagged = isinstance(event, ScalarEvent | CollectionStartEvent) and event.tag is not None
        if not tagged and not event.anchor:
            return span, span
        (line, column), last = _place(event.start_mark), _place(event.end_mark)
        found = _PROPERTIES.match(self.lines[line], column)
        if found is None:
            return span, span
        properties = self.origin.span((line, column), (line, found.end(1)))
        start = (line, found.end())
        if isinstance(event, CollectionStartEvent):
            return self.origin.span(start, (line, start[1] + 1)), properties
        return self.origin.span(min(start, last), last), properties

    def _fresh_anchor(self, name: str, span: Span) -> None:
        if name in self.anchors:
            self.faults.append(faults.second_anchor(name, span, self._path()))

    def _path(self) -> Path:
        return tuple(self._steps())

    def _steps(self) -> Iterator[str | int]:
        for each in self.stack:
            if not each.mapping:
                yield len(each.items)
            elif each.key is not None and each.key.name is not None:
                yield each.key.name


def _refuse_surrogates(text: str) -> None:
    """Refuse lone surrogates, which an escape can create and no encoding can write."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("an escape in it is a lone surrogate (half a character)")


def _place(mark: Any) -> tuple[int, int]:
    """Line and column of a mark, from 0; every event of a text has its marks."""
    return mark.line, mark.column


def _written(event: ScalarEvent) -> str | None:
    unquoted = event.style in (None, "")
    return event.value if unquoted else None
