"""Edits of files by span: one value, one key or one line; everything else is unchanged."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Edit
from tunec.compiler.frontend.nodes import Node
from tunec.schemas.source import Span, line_starts, lines_of

_PLAIN: Final = re.compile(r"[A-Za-z_./][\w./-]*")
_WORDS: Final = frozenset({"yes", "no", "on", "off", "true", "false", "null", "y", "n", "none"})


class Source(Struct, frozen=True):
    """A text to be edited."""

    name: str
    """The file, as spans name it."""
    format: str
    """`json`, `yaml`, `toml`, `env`, `shell` or `python`."""
    text: str


def written(value: Any, format: str) -> str:
    """A value in the syntax of a format: JSON's, or a YAML 1.1 scalar that keeps its type."""
    if format in ("env", "shell"):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if format == "python":
        return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    if format == "yaml":
        if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        if isinstance(value, float):
            return _yaml_float(value)
    return json.dumps(value, ensure_ascii=False)


def _yaml_float(value: float) -> str:
    """A float that YAML 1.1 reads as one: it needs a point, and a sign in the exponent."""
    text = repr(value)
    mantissa, exponent, power = text.partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{exponent}{power}"


def replace_value(source: Source, node: Node, value: Any) -> Edit:
    """The edit that replaces a node's value."""
    text = written(value, source.format)
    span = node.span
    is_empty = (span.line, span.column) == (span.end_line, span.end_column)
    # an empty value (`key:`) has no blank before it
    return Edit(span, f" {text}" if is_empty and source.format == "yaml" else text)


def rename_key(source: Source, node: Node, key: str) -> Edit:
    """The edit that renames a node's key; a flag keeps its dashes."""
    span = node.key_span or node.span
    if source.format in ("env", "shell"):
        return Edit(span, _as_flag(_text_at(source, span), key))
    is_text = source.format == "python" and _text_at(source, span)[:1] in ("'", '"')
    is_quoted = source.format == "json" or is_text
    return Edit(span, json.dumps(key) if is_quoted else key)


def _as_flag(was: str, key: str) -> str:
    """Another name in the spelling of a flag: `--a-b` stays one with dashes."""
    name = was.lstrip("-")
    is_dashed = "-" in name and "_" not in name
    return was[: len(was) - len(name)] + (key.replace("_", "-") if is_dashed else key)


def _text_at(source: Source, span: Span) -> str:
    line = lines_of(source.text)[span.line - 1]
    return line[span.column - 1 : span.end_column - 1] if span.line == span.end_line else ""


def remove_key(source: Source, node: Node) -> Edit:
    """The edit that takes a key out: its lines, or in a flow its part up to the next comma."""
    key, value, text = node.key_span or node.span, node.span, source.text
    lines, starts = lines_of(text), line_starts(text)
    start = starts[key.line - 1] + key.column - 1
    end = starts[value.end_line - 1] + value.end_column - 1
    if source.format in ("env", "shell") and text.startswith("-", start):
        end = _end_of_flag(text, starts[key.end_line - 1] + key.end_column - 1)
        return Edit(span_of(source.name, text, *_with_blanks(text, start, end)), "")
    if source.format in ("json", "python") or "{" in lines[key.line - 1][: key.column - 1]:
        start, end = _with_comma(text, start, end)
    start, end = _with_lines(text, start, end)
    return Edit(span_of(source.name, text, start, end), "")


_BEHIND_FLAG: Final = re.compile(
    r"""(?:=|(?:[ \t]|\\\r?\n)+(?![-#;&|\\\s]))(?:"[^"\n]*"|'[^'\n]*'|[^\s"';&|]+)+"""
)
"""A flag's value as it is written, which may be a variable."""


def _end_of_flag(text: str, end: int) -> int:
    found = _BEHIND_FLAG.match(text, end)
    return found.end() if found else end


def _with_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    """A flag with the blanks before it, and with its line if the command stays complete.

    With a continued line its end is removed too; with the last line, the continuation sign before
    it.
    """
    first = text.rfind("\n", 0, start) + 1
    if text[first:start].strip():
        return len(text[:start].rstrip(" \t")), end
    continued = re.compile(r"[ \t]*\\\r?\n").match(text, end)
    if continued:
        return first, continued.end()
    before = re.compile(r"[ \t]*\\\r?\n[ \t]*\Z").search(text[:start])
    return (before.start() if before else start), end


def _with_comma(text: str, start: int, end: int) -> tuple[int, int]:
    """The span with the comma after it, or, for the last item, with the one before it."""
    after = re.compile(r"\s*,[ \t]*").match(text, end)
    if after:
        return start, after.end()
    before = re.compile(r",\s*\Z").search(text[:start])
    return (before.start(), end) if before else (start, end)


def _with_lines(text: str, start: int, end: int) -> tuple[int, int]:
    """The span with its whole lines, if nothing else is on them."""
    first = text.rfind("\n", 0, start) + 1
    rest = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)").match(text, end)
    if text[first:start].strip() == "" and rest:
        return first, rest.end()
    return start, end


def add_key(source: Source, root: Node, path: str, value: Any) -> Edit | None:
    """The edit that adds a missing key, next to its nearest neighbour.

    None if no mapping around it has a key yet, or in formats other than JSON and YAML.
    """
    holder, rest = _holder(root, path.split("."))
    if not holder.fields or source.format not in ("json", "yaml"):
        return None
    last = max(holder.fields.values(), key=lambda each: (each.span.end_line, each.span.end_column))
    if last.key_span is None:
        return None
    for part in reversed(rest[1:]):
        value = {part: value}
    is_flow = source.format == "json" or _is_flow(source, holder)
    text = _flow_entry(source, last, rest[0], value) if is_flow else None
    text = text or f"\n{' ' * (last.key_span.column - 1)}{rest[0]}: {_block(value)}"
    return Edit(_end_of(last, source, is_flow=is_flow), text)


def _holder(node: Node, parts: list[str]) -> tuple[Node, list[str]]:
    """The deepest existing mapping on the path to a key, and the rest of the path below it."""
    rest = list(parts)
    while len(rest) > 1 and node.fields and rest[0] in node.fields:
        inner = node.fields[rest[0]]
        if not inner.fields:
            break
        node, rest = inner, rest[1:]
    return node, rest


def _is_flow(source: Source, holder: Node) -> bool:
    line = lines_of(source.text)[holder.span.line - 1]
    return line[holder.span.column - 1 : holder.span.column] == "{"


def _flow_entry(source: Source, last: Node, key: str, value: Any) -> str:
    key_span = last.key_span
    lines = lines_of(source.text)
    before = lines[key_span.line - 1][: key_span.column - 1] if key_span else "{"
    entry = f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
    return f",\n{before}{entry}" if before.strip() == "" else f", {entry}"


def _block(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else written(value, "yaml")


def _end_of(last: Node, source: Source, *, is_flow: bool) -> Span:
    """The place after a value; in block style after its line, with comments."""
    line, column = last.span.end_line, last.span.end_column
    lines = lines_of(source.text)
    if not is_flow:
        if column == 1 and line > 1:  # a block scalar ends where the next line begins
            line -= 1
        column = len(lines[line - 1]) + 1
    return Span(source.name, line, column, line, column)


def span_of(file: str, text: str, start: int, end: int) -> Span:
    """The span between two indices of a text."""
    starts = line_starts(text)

    def at(index: int) -> tuple[int, int]:
        line = next(n for n in range(len(starts), 0, -1) if starts[n - 1] <= index)
        return line, index - starts[line - 1] + 1

    return Span(file, *at(start), *at(end))


# ── applying ─────────────────────────────────────────────────────────────────────────────────────


def apply(texts: Mapping[str, str], edits: Iterable[tuple[Edit, ...]]) -> dict[str, str]:
    """The texts after groups of edits; a group that overlaps an earlier one is skipped.

    Returns only the texts that change.
    """
    taken: dict[str, list[tuple[int, int, str]]] = {}
    for group in edits:
        found = [(each.span.file, *_stretch(texts[each.span.file], each)) for each in group]
        if any(start > end for _, start, end, _ in found):
            continue  # a key and the value that a variable above holds
        if any(_overlaps(taken.get(file, []), start, end) for file, start, end, _ in found):
            continue
        for file, start, end, text in found:
            taken.setdefault(file, []).append((start, end, text))
    return {file: _applied(texts[file], changes) for file, changes in taken.items()}


def _stretch(text: str, edit: Edit) -> tuple[int, int, str]:
    starts, span = [*line_starts(text), len(text)], edit.span
    start = starts[span.line - 1] + span.column - 1
    return start, starts[span.end_line - 1] + span.end_column - 1, edit.text


def _overlaps(taken: list[tuple[int, int, str]], start: int, end: int) -> bool:
    return any(start < other_end and other_start < end for other_start, other_end, _ in taken) or (
        any(start == s and end == e for s, e, _ in taken)
    )


def _applied(text: str, changes: list[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text
