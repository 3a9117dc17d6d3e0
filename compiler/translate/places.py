"""The places of a translation's diagnostics: each has a file, a line and a column."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.lints.document import Document
from tunec.compiler.requirements import Asked
from tunec.compiler.translate.sources import Sources
from tunec.schemas.frozen import replace
from tunec.schemas.source import COMMAND_LINE, Span, start_of


def placed(
    found: Iterable[Diagnostic], sources: Sources, asked: Sequence[Asked]
) -> Iterator[Diagnostic]:
    """Diagnostics about slots and keys of new files, at the lines that were read for them.

    If no line sets them, the place is the file that could, or else the first one.
    """
    keys = _slots_by_key(asked)
    for each in found:
        if each.span is not None:
            yield each
            continue
        labels = each.labels or (Label(""),)
        yield replace(each, labels=tuple(_at_a_line(one, keys, sources) for one in labels))


def _slots_by_key(asked: Sequence[Asked]) -> Mapping[str, tuple[str, ...]]:
    """The slots of each key that the new files may have."""
    rows = (row for target, _ in asked for file in target.files for row in file.entries)
    return {key: row.slots for row in rows for key in row.keys}


def _at_a_line(label: Label, keys: Mapping[str, Sequence[str]], sources: Sources) -> Label:
    if label.span is not None:
        return label
    slots = (label.path,) if label.path in SLOTS else keys.get(label.path, ())
    for slot in slots:
        for cause in sources.ledger.causes(slot):
            if cause.span is not None:
                text = f"{slot} follows from this" if cause.slot != slot else label.text
                return replace(label, text=text, span=cause.span)
    return replace(label, span=_start(slots, sources))


def _start(slots: Sequence[str], sources: Sources) -> Span:
    """The start of the file that could set some slots, or of the first one."""
    files = [each for each in sources.run.documents if each.name in sources.texts]
    saying = (each for each in files if _has_row(each, slots))
    document = next(saying, files[0] if files else None)
    if document is not None:
        return document.start()
    name = next(iter(sources.texts), COMMAND_LINE)
    return start_of(name)


def _has_row(document: Document, slots: Sequence[str]) -> bool:
    rows = document.file.entries if document.file is not None else ()
    return any(slot in row.slots for row in rows for slot in slots)
