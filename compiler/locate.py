"""Finds lines: diagnostics name paths of the spec, and this module adds their spans."""

from collections.abc import Iterable

from tunec.compiler.diagnostics.allow import suppress
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import otherwise
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.ir.ledger import Definition, Ledger, Rank
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.values import show
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span, dotted, start_of


def locate(diagnostics: Iterable[Diagnostic], loaded: Loaded) -> tuple[Diagnostic, ...]:
    """Give each label with a path but no span the span of the nearest text in the spec.

    Diagnostics that the spec's `allow` or comments in its files accept are left out.
    """
    found = tuple(diagnostics)
    if not found:
        return ()
    spans = {dotted(path): span for path, span in loaded.spans.items()}
    placed = (
        replace(each, labels=_each_once(_located(label, spans) for label in each.labels))
        for each in found
    )
    return suppress((_somewhere(each, spans) for each in placed), loaded.allowances).kept


def traced(
    diagnostics: Iterable[Diagnostic], ledger: Ledger, loaded: Loaded
) -> tuple[Diagnostic, ...]:
    """Point diagnostics of decided slots at the lines of the spec from which they follow.

    A slot that no line led to gets no span, but a note of the decision that set it. If a slot
    follows from another with the same diagnostic at the same line, it is left out: one fix serves
    both.
    """
    written = {dotted(path) for path in loaded.spans}
    found = tuple((each, _traced(each, ledger, written)) for each in diagnostics)
    said = {(one.id, _slot(before), _slot(one)) for before, one in found}
    return tuple(one for before, one in found if not _follows(before, one, ledger, said))


def _slot(diagnostic: Diagnostic) -> str:
    """The subject of a diagnostic: a slot or, once traced, the line that led to it."""
    return diagnostic.primary.path if diagnostic.primary else ""


def _follows(
    before: Diagnostic, traced: Diagnostic, ledger: Ledger, said: set[tuple[str, str, str]]
) -> bool:
    """Whether a slot on which this one rests has the same diagnostic at the same line."""
    winner = ledger.winner(_slot(before)) if _slot(before) in SLOTS else None
    if winner is None or _slot(before) == _slot(traced):
        return False
    below = {each.slot for each in ledger.causes(winner.slot)} - {winner.slot}
    return any((traced.id, slot, _slot(traced)) in said for slot in below)


def _traced(diagnostic: Diagnostic, ledger: Ledger, written: set[str]) -> Diagnostic:
    labels: list[Label] = []
    notes, remedy = [*diagnostic.notes], diagnostic.help
    for label in diagnostic.labels:
        winner = None if label.span or label.path not in SLOTS else ledger.winner(label.path)
        if winner is None or (winner.rank is Rank.PIN and f"pin.{label.path}" in written):
            labels.append(label)
            continue
        line, cause = _led_to(winner, ledger, written)
        if line:
            text = label.text if cause is winner else f"{label.path} follows from this"
            labels.append(replace(label, text=text, path=line))
            if remedy and cause is winner:
                remedy = remedy.replace(otherwise(label.path), f"change {line}")
        else:
            notes.append(_decision(winner))
    return replace(diagnostic, labels=tuple(labels), notes=tuple(notes), help=remedy)


def _decision(winner: Definition) -> str:
    value = show(winner.slot, winner.value)
    return f"{winner.slot} is {value} by {winner.author}: {winner.reason}"


def _led_to(winner: Definition, ledger: Ledger, written: set[str]) -> tuple[str, Definition | None]:
    """The path in the spec from which a slot follows by the fewest steps, and what rests on it.

    If only unwritten fields led there, it is the nearest written text around one.
    """
    around: tuple[str, Definition | None] = "", None
    for each in ledger.causes(winner.slot):
        for origin in (one for one in each.rests if one.kind == "spec"):
            if origin.path in written:
                return origin.path, each
            parent = origin.path.rpartition(".")[0]
            if parent in written and not around[0]:
                around = parent, each
    return around


def _somewhere(diagnostic: Diagnostic, spans: dict[str, Span]) -> Diagnostic:
    """Place a diagnostic without a line at the targets, or at the top of the file.

    Tools that annotate lines of files would drop it otherwise. Warnings and notes then concern the
    file as a whole.
    """
    if diagnostic.span is not None:
        return diagnostic
    path = diagnostic.primary.path if diagnostic.primary else ""
    asked, whole = spans.get("targets"), spans.get("")
    if whole is None:
        return diagnostic
    if diagnostic.severity != "error":
        label = Label("", start_of(whole.file), path)
    elif asked is not None and diagnostic.id.startswith("E09"):
        label = Label("requested here", asked, path)
    else:
        top = replace(whole, end_line=whole.line, end_column=whole.column)
        label = Label("in this spec", top, path)
    return replace(diagnostic, labels=(label, *diagnostic.labels[1:]))


def _located(label: Label, spans: dict[str, Span]) -> Label:
    if label.span is not None or not label.path:
        return label
    return replace(label, span=_nearest(label.path, spans))


def _each_once(labels: Iterable[Label]) -> tuple[Label, ...]:
    """The first of labels that have one text at one place, and those without a place."""
    shown: dict[tuple[Span | str, str], Label] = {}
    for each in labels:
        shown.setdefault((each.span or each.path, each.text), each)
    return tuple(shown.values())


def _nearest(path: str, spans: dict[str, Span]) -> Span | None:
    """The span of a path or of the nearest path around it; a pin's, if the slot has one."""
    if f"pin.{path}" in spans:
        return spans[f"pin.{path}"]
    while path and path not in spans:
        path = path.rpartition(".")[0]
    return spans[path] if path else None
