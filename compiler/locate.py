"""Find the line: diagnostics name paths of the spec, and this puts the spans to them."""

from collections.abc import Iterable
from dataclasses import replace

from tunec.compiler.diagnostics.allow import suppress
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.frontend.load import Loaded
from tunec.schemas.source import Span, dotted


def locate(diagnostics: Iterable[Diagnostic], loaded: Loaded) -> tuple[Diagnostic, ...]:
    """Give each label that has a path but no span the span of the nearest thing written there.

    Leaves out what the spec's `allow` and the comments of its files accept.
    """
    found = tuple(diagnostics)
    if not found:
        return ()
    spans = {dotted(path): span for path, span in loaded.spans.items()}
    placed = (
        replace(each, labels=tuple(_located(label, spans) for label in each.labels))
        for each in found
    )
    return suppress((_somewhere(each, spans) for each in placed), loaded.allowances).kept


def _somewhere(diagnostic: Diagnostic, spans: dict[str, Span]) -> Diagnostic:
    """An error about a value that no line says is told where targets are asked for, or at the top.

    What annotates the lines of files would leave it out otherwise.
    """
    if diagnostic.severity != "error" or any(each.span for each in diagnostic.labels):
        return diagnostic
    path = diagnostic.primary.path if diagnostic.primary else ""
    asked, whole = spans.get("targets"), spans.get("")
    if asked is not None and diagnostic.id.startswith("E09"):
        label = Label("asked for here", asked, path)
    elif whole is not None:
        top = replace(whole, end_line=whole.line, end_column=whole.column)
        label = Label("in this spec", top, path)
    else:
        return diagnostic
    return replace(diagnostic, labels=(label, *diagnostic.labels[1:]))


def _located(label: Label, spans: dict[str, Span]) -> Label:
    if label.span is not None or not label.path:
        return label
    return replace(label, span=_nearest(label.path, spans))


def _nearest(path: str, spans: dict[str, Span]) -> Span | None:
    """Where a path or the next thing around it is written; a slot's pin, if it has one."""
    if f"pin.{path}" in spans:
        return spans[f"pin.{path}"]
    while path and path not in spans:
        path = path.rpartition(".")[0]
    return spans[path] if path else None
