"""Faults of a document's structure, in YAML and in JSON."""

from collections.abc import Iterable
from typing import Any

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import shortened
from tunec.compiler.frontend.faults import beside, error
from tunec.schemas.source import Path, Span


def too_deep(most: int, span: Span) -> Diagnostic:
    """The document is nested too deeply."""
    return error("E0110", f"the document is nested more than {most} levels deep", span)


def too_many_values(most: int, span: Span) -> Diagnostic:
    """The document has too many values."""
    message = f"the document holds more than {most} values, aliases expanded"
    return error("E0110", message, span, help="give a configuration file")


def second_document(span: Span) -> Diagnostic:
    """The file holds a second document."""
    message = "the file holds more than one document"
    remedy = "keep one document in a file: remove `---` and what follows it"
    return error("E0113", message, span, help=remedy)


def duplicate_key(name: str, first: Span, again: Span, path: Path) -> Diagnostic:
    """A key is given twice; both places are labelled."""
    return error(
        "E0107",
        f"the key `{shortened(name)}` is given twice",
        again,
        label="given again here",
        path=path,
        others=(beside("first given here", first, path),),
        notes=("most readers keep the last one and silently drop the first",),
        help="keep one of them",
    )


def collection_as_key(span: Span, path: Path) -> Diagnostic:
    """A key is a mapping or a list."""
    message = "a mapping or a list stands in place of a key"
    remedy = "if it is meant as text, such as a `{...}` pattern, put it in quotes"
    return error("E0108", message, span, path=path, help=remedy)


def key_not_text(written: str, value: Any, dialect: str, span: Span, path: Path) -> Diagnostic:
    """A key is read as something other than text."""
    kind = type(value).__name__ if value is not None else "null"
    return error(
        "E0108",
        f"the key `{shortened(written)}` is not text",
        span,
        path=path,
        notes=(f"unquoted, {dialect} reads it as {kind}",),
        help=f'write "{shortened(written)}" in quotes',
    )


def tag(name: str, span: Span, path: Path) -> Diagnostic:
    """A tag is outside the core schema, or does not fit its value."""
    written = name.replace("tag:yaml.org,2002:", "!!")
    return error(
        "E0109",
        f"the tag `{shortened(written)}` is not allowed",
        span,
        path=path,
        notes=("tags can name a program's types and code; only plain data is read",),
        help="write the value without a tag",
    )


def unknown_anchor(name: str, span: Span, anchors: Iterable[str]) -> Diagnostic:
    """An alias has no anchor."""
    known = ", ".join(f"`&{each}`" for each in anchors)
    note = f"anchors written before it: {known}" if known else "no anchor is written before it"
    message = f"the alias `*{shortened(name)}` has no anchor"
    remedy = "if no alias is meant, put the text in quotes"
    return error("E0111", message, span, notes=(note,), help=remedy)


def circular_alias(name: str, span: Span) -> Diagnostic:
    """An alias is inside the value that it refers to."""
    message = f"the alias `*{shortened(name)}` refers to a value that contains it"
    return error("E0111", message, span, help="write the value out")


def second_anchor(name: str, span: Span, path: Path) -> Diagnostic:
    """Two values have one anchor, which PyYAML refuses."""
    message = f"the anchor `&{shortened(name)}` is given twice"
    return error("E0111", message, span, path=path, help="rename the second one")


def unreadable(text: str, kind: str, why: str, span: Span, path: Path) -> Diagnostic:
    """A scalar cannot be read as its tag or its form requires."""
    note = "the number has too many digits" if "digits" in why else shortened(why, 100)
    message = f"`{shortened(text)}` cannot be read as {kind}"
    remedy = "put it in quotes to make it text"
    return error("E0112", message, span, path=path, notes=(note,), help=remedy)


def merge_of_no_mapping(span: Span, path: Path) -> Diagnostic:
    """A merge key refers to no mapping."""
    message = "a merge key `<<` needs a mapping or a list of mappings"
    return error("E0114", message, span, path=path, help="give it an alias for a mapping")
