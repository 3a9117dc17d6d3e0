"""Facts about the keys of a linted config: its reader's schema, rows and slots."""

from collections.abc import Iterator
from typing import Any

from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.effective import CLASSES
from tunec.compiler.lints.kinds import known_keys, schema, schema_name
from tunec.compiler.lints.schemas import schemas
from tunec.compiler.lsp.analysis import Analysis
from tunec.compiler.lsp.schema_walk import Field, Schema, Schemas, field_at
from tunec.schemas.source import Path, dotted


def documents(analysis: Analysis) -> Iterator[tuple[LintContext, Document]]:
    """The file's documents, each with its run; a script holds several."""
    linted = analysis.last_linted
    for run in linted.runs if linted else ():
        for each in run.documents:
            if each.name == analysis.name and not each.is_view:
                yield run, each


def schema_of(run: LintContext, document: Document) -> Schema | None:
    """The schema of a document's keys: that of the release in use, else of the newest."""
    found = next(iter(schemas(run, document)), None)
    if found is None and document.target is not None and document.file is not None:
        name = schema_name(document.target, document.file)
        found = schema(name) if name is not None else None
    return found


def fields(run: LintContext, document: Document, path: Path) -> dict[str, Field]:
    """The keys that a mapping of a document may have."""
    known = schema_of(run, document)
    found = Schemas.of(known, path).fields() if known is not None else {}
    if not path and document.target is not None and document.file is not None:
        more = known_keys(document.target, document.file)
        found |= {name: Field(name, "", "") for name in sorted(more) if name not in found}
    return found


def values(run: LintContext, document: Document, path: Path) -> dict[str, Any]:
    """The known values of a key, by their JSON text."""
    known = schema_of(run, document)
    return Schemas.of(known, path).values() if known is not None else {}


def about(run: LintContext, document: Document, path: Path) -> str:
    """A key as Markdown: its type and default, what it decides, and its effective value."""
    known, key = schema_of(run, document), dotted(path)
    field = field_at(known, path) if known is not None else None
    lines = [head(dotted(path), field)] if field is not None else [f"**{key}**"]
    if field is not None and field.about:
        lines.append(field.about)
    if known is not None:
        lines.append(f"*{document.kind}, {_release(run, document)}*")
    lines += (f"sets `{slot}`: {SLOTS[slot].doc}" for slot in slots(document, key))
    effective = run.effective(document.kind, key)
    if effective.known and not effective.is_written:
        lines.append(f"comes to `{effective.value}`: {effective.by}")
    is_told = len(lines) > 1
    return "\n\n".join(each for each in lines if each) if is_told else ""


def head(name: str, field: Field) -> str:
    """A field's name, type and default as one line of Markdown."""
    parts = [f"**{name}**"]
    if field.type:
        parts.append(field.type)
    if field.is_required:
        parts.append("required")
    elif field.has_default and field.default is not None:
        parts.append(f"default `{field.default}`")
    return " · ".join(parts)


def slots(document: Document, key: str) -> tuple[str, ...]:
    """The slots that a key of a document sets, according to its reader's rows."""
    rows = document.file.entries if document.file is not None else ()
    found = (slot for row in rows if key in row.keys for slot in row.slots)
    return tuple(dict.fromkeys(found))


def _release(run: LintContext, document: Document) -> str:
    package = document.target.package if document.target is not None else ""
    for _, named in CLASSES.get(document.kind, ())[:1]:
        package = named
    if document.kind == "deepspeed":
        package = "deepspeed"
    if not package:
        return ""
    return f"{package} {run.release(package).version}"
