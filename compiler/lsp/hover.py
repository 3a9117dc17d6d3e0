"""The meaning of a key, and the reasons of the decisions that rest on it, as Markdown."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.driver import Planned
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.values import show
from tunec.compiler.lsp import dialect
from tunec.compiler.lsp.analysis import Analysis
from tunec.compiler.lsp.cursor import node_at
from tunec.compiler.lsp.schema_walk import field_at, ours
from tunec.compiler.review.explain import explain_text
from tunec.schemas.source import Path, Span, dotted

_MOST: Final = 12
"""The most decisions that are shown for one key."""


def hover(analysis: Analysis, line: int, column: int) -> tuple[str, Span] | None:
    """The text to show at a place, and the span that it is about; None if there is none."""
    if analysis.kind is None:
        return _of_config(analysis, line, column)
    found = node_at(analysis.tree, line, column) if analysis.tree is not None else None
    if found is None:
        return None
    path, node = found
    said = [_field(analysis.kind.name, path)]
    if analysis.last_planned is not None and analysis.kind.name == "spec":
        said.append(_decided(analysis.last_planned, path))
    text = "\n\n".join(filter(None, said))
    return (text, node.key_span or node.span) if text else None


def _field(kind: str, path: Path) -> str:
    field = field_at(ours(kind), path)
    if field is None:
        return ""
    return "\n\n".join(filter(None, (dialect.head(dotted(path), field), field.about)))


def _decided(planned: Planned, path: Path) -> str:
    """The reasons of slots that rest on a place of the spec; the full tree if it is one slot."""
    if path[0] == "pin" and len(path) > 1 and str(path[1]) in SLOTS:
        slots = [str(path[1])]
    else:
        slots = list(_resting(planned, dotted(path)))
    known = [slot for slot in slots if planned.ledger.winner(slot) is not None]
    if len(known) == 1:
        return _code(explain_text(planned, known[0]))
    lines = [*_lines(planned, known[:_MOST])]
    if len(known) > _MOST:
        lines.append(f"and {len(known) - _MOST} more")
    return _code("\n".join(lines)) if lines else ""


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


def _lines(planned: Planned, slots: list[str]) -> Iterator[str]:
    for slot in slots:
        winner = planned.ledger.winner(slot)
        if winner is not None:
            yield f"{slot} = {show(slot, winner.value)}: {winner.reason}"


def _resting(planned: Planned, path: str) -> Iterator[str]:
    """The slots whose values rest on a place of the spec, or on a place inside it."""
    for slot in SLOTS:
        winner = planned.ledger.winner(slot)
        origins = (each.path for each in winner.rests if each.kind == "spec") if winner else ()
        if any(each == path or each.startswith((f"{path}.", f"{path}[")) for each in origins):
            yield slot


def _of_config(analysis: Analysis, line: int, column: int) -> tuple[str, Span] | None:
    for run, document in dialect.documents(analysis):
        found = node_at(document.root, line, column)
        if found is not None:
            text = dialect.about(run, document, found[0])
            if text:
                return text, found[1].key_span or found[1].span
    return None
