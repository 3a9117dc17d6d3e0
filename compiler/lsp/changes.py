"""The changes to a spec in the editor since the last commit, as `tunec diff` reviews them."""

import os
from pathlib import Path
from typing import NamedTuple

from tunec.compiler.frontend.disk import Instead, Unreadable
from tunec.compiler.lsp.analysis import Analysis, Surroundings, analyse
from tunec.compiler.review.diff.compare import Comparison, compare_spec
from tunec.compiler.review.diff.formats import comparison_markdown
from tunec.compiler.review.diff.intent import intent_changes
from tunec.compiler.review.outcome import Pair, needs_of, outcome_of
from tunec.compiler.review.screen.screen import duration
from tunec.compiler.review.sides import NoRevision, blob, commit_of, root_of
from tunec.schemas.units import format_bytes


class Committed(NamedTuple):
    """A spec as it is in the last commit."""

    commit: str
    analysis: Analysis


class Changes(NamedTuple):
    """The changes as one line and in full."""

    title: str
    markdown: str


def committed(
    analysis: Analysis, around: Surroundings, known: Committed | None
) -> Committed | None:
    """The spec of the last commit, or `known` if that is still current; None if there is none."""
    try:
        root = root_of(analysis.path.parent)
        commit = commit_of("HEAD", root)
        if known is not None and known.commit == commit:
            return known
        read = _at(commit, root)
        content = read(analysis.path)
    except (NoRevision, Unreadable):
        return None
    if content is None:
        return None
    before = Surroundings(around.registry, read, around.sources)
    text = content.decode("utf-8", "replace")
    return Committed(commit, analyse(analysis.path, text, before))


def _at(commit: str, root: Path) -> Instead:
    """The files of a repository as they are in a commit; files elsewhere are read from disk."""
    top = Path(os.path.realpath(root))

    def read(path: Path) -> bytes | None:
        full = Path(os.path.realpath(path))
        if not full.is_relative_to(top):
            return None
        try:
            return blob(commit, full.relative_to(top), top)
        except NoRevision:
            raise Unreadable("there is no such file") from None

    return read


def changes(old: Analysis, new: Analysis) -> Changes | None:
    """The effects of the changes; None if one of the two specs cannot be read."""
    before, after = old.planned, new.planned
    if before is None or after is None or not (before.loaded.spec and after.loaded.spec):
        return None
    pair = Pair(new.name, after.facts.cluster.name if after.facts is not None else "")
    change = compare_spec(
        new.name,
        intent_changes(before.loaded, after.loaded),
        [(outcome_of(before, pair), outcome_of(after, pair))],
    )
    comparison = Comparison((change,))
    if not change.is_told:
        return Changes("nothing changes since the last commit", comparison_markdown(comparison))
    kind = change.kind if change.groups else "no effect"
    told = [f"since the last commit: {kind}", *_measures(old, new)]
    decisions = sum(len(group.slots) for group in change.groups)
    if decisions:
        told.insert(1, f"{decisions} decision{'s' if decisions > 1 else ''}")
    return Changes(", ".join(told), comparison_markdown(comparison))


def _measures(old: Analysis, new: Analysis) -> list[str]:
    """Memory and time of a step, if both are known and differ in the text that is shown."""
    needs = [needs_of(each.planned) if each.planned is not None else None for each in (old, new)]
    before, after = needs
    if after is None:
        return ["nothing fits"]
    if before is None:
        return ["fits now"]
    shown = [
        (format_bytes(before.required), format_bytes(after.required)),
        (f"{duration(before.step_seconds)} a step", f"{duration(after.step_seconds)} a step"),
    ]
    return [f"{one} → {other}" for one, other in shown if one != other]
