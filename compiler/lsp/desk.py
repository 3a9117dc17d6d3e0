"""The files that are open in an editor, their analyses, and the diagnostics shown in each."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from lsprotocol.types import Diagnostic

from tunec.compiler.frontend.disk import Instead, Unreadable
from tunec.compiler.lints.own_source import OwnSource
from tunec.compiler.lsp.analysis import Analysis, Registry, Surroundings, analyse, repaired, unsaved
from tunec.compiler.lsp.places import Text
from tunec.compiler.lsp.problems import problems
from tunec.compiler.review.diff.compare import Comparison, compare_spec
from tunec.compiler.review.diff.formats import comparison_markdown
from tunec.compiler.review.diff.intent import intent_changes
from tunec.compiler.review.outcome import Pair, needs_of, outcome_of
from tunec.compiler.review.screen.screen import duration
from tunec.compiler.review.sides import NoRevision, blob, commit_of, root_of
from tunec.schemas.caches import forget
from tunec.schemas.frozen import replace
from tunec.schemas.units import format_bytes


class CommittedSpec(NamedTuple):
    """A spec as it is in the last commit."""

    commit: str
    analysis: Analysis


class Changes(NamedTuple):
    """The changes as one line and in full."""

    title: str
    markdown: str


def committed_spec(
    analysis: Analysis, around: Surroundings, known: CommittedSpec | None
) -> CommittedSpec | None:
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
    return CommittedSpec(commit, analyse(analysis.path, text, before))


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


_MUCH: Final = 500
"""How many results each cache keeps between edits; enough for one spec."""


class Open(NamedTuple):
    """An open file."""

    text: str
    version: int | None = None
    """The editor's version number of the text."""


class Desk:
    """Open files by path. Texts may change at any time; other changes are made one after another.

    Methods that only read may run in between, as they iterate over copies.
    """

    def __init__(self, registry: Registry, encoding: str = "utf-16") -> None:
        self.registry = registry
        self.encoding = encoding
        self.open: dict[Path, Open] = {}
        self.analyses: dict[Path, Analysis] = {}
        self._sources: dict[tuple[Path, ...], OwnSource] = {}
        self.versions: dict[Path, int | None] = {}
        """The version of the text behind each analysis."""
        self._committed: dict[Path, CommittedSpec] = {}
        self._shown: dict[Path, frozenset[Path]] = {}
        """The files in which the results of each analysis were last shown."""

    def around(self) -> Surroundings:
        """The current inputs of an analysis."""
        return Surroundings(self.registry, unsaved(self._texts()), self._sources)

    def analyse(self, path: Path) -> Analysis | None:
        """Analyse one open file again; None if it is no longer open."""
        file = self.open.get(path)
        if file is None:
            return None
        found = analyse(path, file.text, self.around(), self.analyses.get(path))
        if path not in self.open:  # closed meanwhile
            return None
        self.analyses[path], self.versions[path] = found, file.version
        forget(_MUCH)
        return found

    def repair(self, path: Path) -> bool:
        """Look for changes that make an open spec fit; return whether the analysis was replaced."""
        analysis = self.analyses.get(path)
        if analysis is None or analysis.text != self.text(path).text:
            return False
        found = repaired(analysis, self.around())
        if found is not None:
            self.analyses[path] = found
        return found is not None

    def changes(self, path: Path) -> Changes | None:
        """The changes to an open spec since the last commit."""
        analysis = self.analyses.get(path)
        if analysis is None or analysis.planned is None:
            return None
        found = committed_spec(analysis, self.around(), self._committed.get(path))
        if found is None:
            return None
        self._committed[path] = found
        return changes(found.analysis, analysis)

    def _texts(self) -> dict[Path, str]:
        return {path: file.text for path, file in list(self.open.items())}

    def disk_changed(self) -> None:
        """Forget the cached Python files of projects, which may have changed on disk."""
        self._sources.clear()

    def close(self, path: Path) -> None:
        """Forget a file that is no longer open."""
        for table in (self.open, self.analyses, self.versions, self._committed):
            table.pop(path, None)

    def dependents(self, path: Path) -> tuple[Path, ...]:
        """Other open files whose analysis reads a file."""
        return tuple(
            each
            for each, analysis in list(self.analyses.items())
            if each != path and path in set(_files(analysis))
        )

    def seen(self, path: Path) -> Analysis | None:
        """The analysis of an open file; for a config that another open file names, from both."""
        own, speaker = self.analyses.get(path), self._speaker(path)
        if own is None or speaker is None or speaker is own or speaker.last_linted is None:
            return own
        runs = speaker.last_linted.runs
        if not any(each.name == own.name for run in runs for each in run.documents):
            return own
        return replace(
            own,
            diagnostics=speaker.diagnostics,
            sources={**speaker.sources, **own.sources},
            last_linted=speaker.last_linted,
        )

    def text(self, path: Path) -> Text:
        """The text of an open file; empty if the file is not open."""
        return Text(self.open[path].text if path in self.open else "", self.encoding)

    def to_show(self, path: Path) -> dict[Path, list[Diagnostic]]:
        """The diagnostics to show, by affected file, after a file was read or closed."""
        analysis = self.analyses.get(path)
        now = frozenset(_files(analysis)) if analysis is not None else frozenset()
        before = self._shown.pop(path, frozenset())
        if now:
            self._shown[path] = now
        return {each: list(self._problems(each)) for each in sorted({*before, *now, path})}

    def _problems(self, file: Path) -> Iterator[Diagnostic]:
        speaker = self._speaker(file)
        if speaker is None:
            return
        texts = {name: Text(text, self.encoding) for name, text in speaker.sources.items()}
        for name, each in problems(speaker.diagnostics, texts):
            if Path(os.path.realpath(name)) == file:
                yield each

    def _speaker(self, file: Path) -> Analysis | None:
        """The analysis whose diagnostics are shown in a file: the one that reads the most files.

        A config that another open file names is judged together with that file. tunec's own kinds
        of files use their own analysis.
        """
        own = self.analyses.get(file)
        if own is not None and own.kind is not None:
            return own
        readers = [each for each in list(self.analyses.values()) if file in set(_files(each))]
        return max(readers, key=lambda each: (each.is_known, len(each.sources)), default=None)


def _files(analysis: Analysis) -> Iterator[Path]:
    """The resolved paths of the files that an analysis read."""
    for name in analysis.sources:
        if not name.startswith("<"):
            yield Path(os.path.realpath(name))
