"""The section with diagnostics: errors, warnings and notes, with their places."""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import dedent

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.terminal import show, sum_lines, summary
from tunec.compiler.review.report.html import Element, Section, tag


def faults_section(diagnostics: Sequence[Diagnostic], sources: Mapping[str, str]) -> Section:
    """All diagnostics, the most severe first."""
    grave = ("error", "warning", "note")
    ordered = sorted(diagnostics, key=lambda each: grave.index(each.severity))
    words = f"{summary(ordered)}." if ordered else "There is nothing to report."
    content = (tag("p", words), [_fault(each, sources) for each in ordered])
    return Section("diagnostics", "Diagnostics", content)


def _fault(each: Diagnostic, sources: Mapping[str, str]) -> Element:
    heading = tag(
        "h3",
        tag("span", each.severity, class_="severity"),
        " ",
        tag("code", each.id),
        " ",
        each.message,
    )
    return tag("article", heading, list(_body(each, sources)), class_=f"fault {each.severity}")


def _body(each: Diagnostic, sources: Mapping[str, str]) -> Iterator[Element]:
    for label in each.labels:
        yield from _place(label, sources)
    if each.sum:
        yield tag("pre", "\n".join(sum_lines(each.sum)))
    for note in each.notes:
        yield tag("p", note, class_="note")
    if each.help:
        first, _, rest = each.help.partition("\n")
        yield tag("p", tag("strong", "help: "), first)
        yield from (tag("pre", dedent(rest)),) if rest else ()


def _place(label: Label, sources: Mapping[str, str]) -> Iterator[Element]:
    if label.span is None:
        return
    yield tag("p", tag("code", str(label.span)), f" {label.text}".rstrip(), class_="quiet")
    source = sources.get(label.span.file)
    shown = show(label.span, source) if source is not None else None
    if shown is not None:
        start, end = shown.start, shown.start + shown.width
        marked = tag("mark", shown.text[start:end])
        yield tag("pre", shown.text[:start], marked, shown.text[end:])
