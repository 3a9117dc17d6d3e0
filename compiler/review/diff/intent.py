"""The changes to the text of a spec: fields of the composed spec, by dotted path."""

from collections.abc import Iterator, Mapping
from os.path import relpath
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.frontend.load import Loaded
from tunec.schemas.dotted_paths import flat
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span, dotted

NOT_GIVEN: Final = "not given"


class FieldChange(Struct, frozen=True):
    """One field of a spec before and after; None if the field was not given."""

    path: str
    old: Any
    new: Any
    old_text: str
    """The old value as the old spec writes it."""
    new_text: str
    span: Span | None = None
    """The field's place in the new spec, or in the old one if the field was removed."""


def intent_changes(old: Loaded, new: Loaded) -> tuple[FieldChange, ...]:
    """Fields that differ, sorted by path; fields that neither spec gives are not listed."""
    before, after = dict(_fields(old)), dict(_fields(new))
    return tuple(
        FieldChange(
            path,
            before.get(path),
            after.get(path),
            _written(path, before, old),
            _written(path, after, new),
            _place(path, new) or _place(path, old),
        )
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    )


def is_renamed(old: Loaded, new: Loaded) -> bool:
    """Whether two specs differ in nothing but their name."""
    return {**dict(_fields(old)), "name": ""} == {**dict(_fields(new)), "name": ""}


def _fields(loaded: Loaded) -> Iterator[tuple[str, Any]]:
    if loaded.spec is not None:
        given = loaded.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        yield from flat(given).items()


def _written(path: str, fields: Mapping[str, Any], loaded: Loaded) -> str:
    """The value exactly as written if it is on one line, else its parsed value."""
    if path not in fields:
        return NOT_GIVEN
    span = _span(path, loaded)
    lines = loaded.sources.get(span.file, "").splitlines() if span else []
    if span is None or span.line != span.end_line or span.line > len(lines):
        return str(fields[path])
    return lines[span.line - 1][span.column - 1 : span.end_column - 1]


def _place(path: str, loaded: Loaded) -> Span | None:
    """The span of a field, with an absolute file made relative to the spec's own folder."""
    span = _span(path, loaded)
    if span is None or not Path(span.file).is_absolute():
        return span
    return replace(span, file=Path(relpath(span.file, loaded.base)).as_posix())


def _span(path: str, loaded: Loaded) -> Span | None:
    return next((span for each, span in loaded.spans.items() if dotted(each) == path), None)
