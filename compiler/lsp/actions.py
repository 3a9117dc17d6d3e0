"""Actions for a diagnostic: its fix, all safe fixes of a file, or an allowance."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from lsprotocol.types import CodeAction, CodeActionKind, Diagnostic, Range, TextEdit, WorkspaceEdit

from tunec.compiler.diagnostics import diagnostic as ours
from tunec.compiler.diagnostics.codes import is_code
from tunec.compiler.lints.edits import apply
from tunec.compiler.lsp.analysis import Analysis
from tunec.compiler.lsp.places import Text, uri_of
from tunec.compiler.lsp.problems import problems
from tunec.schemas.source import Span

FIX_ALL: Final = f"{CodeActionKind.SourceFixAll.value}.tunec"
_WITHOUT_COMMENTS: Final = frozenset({".json", ".hostfile"})


def actions(
    analysis: Analysis, encoding: str, at: Range, wanted: Iterable[str]
) -> list[CodeAction]:
    """Actions of the `wanted` kinds for the diagnostics in a range of a file."""
    texts = {name: Text(text, encoding) for name, text in analysis.sources.items()}
    found = [*_fixes(analysis, texts, at), *_all(analysis, texts)]
    kinds = tuple(wanted)
    return [each for each in found if not kinds or _is_wanted(each, kinds)]


def _is_wanted(action: CodeAction, kinds: Iterable[str]) -> bool:
    own = str(getattr(action.kind, "value", action.kind))
    return any(own == kind or own.startswith(f"{kind}.") for kind in kinds)


def _fixes(analysis: Analysis, texts: Mapping[str, Text], at: Range) -> Iterator[CodeAction]:
    for each in analysis.diagnostics:
        for name, shown in problems((each,), texts):
            if name != analysis.name or not _meets(shown.range, at):
                continue
            if each.fix is not None:
                yield _fix(each, each.fix, shown, texts)
            if not is_code(each.id) and not each.is_bug:
                yield from _allowance(each, shown, analysis, texts[name])


def _meets(one: Range, other: Range) -> bool:
    return one.start <= other.end and other.start <= one.end


def _fix(
    found: ours.Diagnostic, fix: ours.Fix, shown: Diagnostic, texts: Mapping[str, Text]
) -> CodeAction:
    edits: dict[str, list[TextEdit]] = {}
    for each in fix.edits:
        if each.span.file in texts:
            edit = TextEdit(texts[each.span.file].range(each.span), each.text)
            edits.setdefault(uri_of(each.span.file), []).append(edit)
    safe = fix.applicability == "safe"
    return CodeAction(
        (found.help or f"fix {found.id}")
        if safe
        else f"{found.help or found.id} (changes the run)",
        kind=CodeActionKind.QuickFix,
        diagnostics=[shown],
        is_preferred=safe,
        edit=WorkspaceEdit(edits),
    )


def _allowance(
    found: ours.Diagnostic, shown: Diagnostic, analysis: Analysis, text: Text
) -> Iterator[CodeAction]:
    """A comment above the line that allows the diagnostic; the user fills in the reason."""
    line = shown.range.start.line + 1
    if analysis.path.suffix.lower() in _WITHOUT_COMMENTS or line > len(text.lines):
        return
    if _is_continued(text, line):
        return
    own = text.lines[line - 1]
    lead = own[: len(own) - len(own.lstrip())]
    start = text.range(Span("", line, 1, line, 1))
    comment = f"{lead}# tunec: allow({found.id}): \n"
    yield CodeAction(
        f"allow {found.id} here, with a reason",
        kind=CodeActionKind.QuickFix,
        diagnostics=[shown],
        edit=WorkspaceEdit({uri_of(analysis.name): [TextEdit(start, comment)]}),
    )


def _is_continued(text: Text, line: int) -> bool:
    """Whether a command continues from the line before, so that no comment can be between them."""
    return line > 1 and text.lines[line - 2].endswith("\\")


def _all(analysis: Analysis, texts: Mapping[str, Text]) -> Iterator[CodeAction]:
    """Every safe fix of the file as one edit."""
    fixes = [each.fix for each in analysis.diagnostics if each.fix is not None]
    edits = [each.edits for each in fixes if each.applicability == "safe"]
    mine = [each for each in edits if {edit.span.file for edit in each} <= {analysis.name}]
    changed = apply(analysis.sources, mine).get(analysis.name) if mine else None
    if changed is not None:
        edit = TextEdit(texts[analysis.name].whole, changed)
        yield CodeAction(
            "apply every safe fix of tunec",
            kind=FIX_ALL,
            edit=WorkspaceEdit({uri_of(analysis.name): [edit]}),
        )
