"""The files that are open in an editor, what is known of each, and what is shown in which file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from lsprotocol.types import Diagnostic

from tunec.compiler.lints.own_source import OwnSource
from tunec.compiler.lsp.analysis import (
    Analysis,
    Registry,
    Surroundings,
    analyse,
    repaired,
    unsaved,
)
from tunec.compiler.lsp.changes import Changes, Committed, changes, committed
from tunec.compiler.lsp.places import Text
from tunec.compiler.lsp.problems import problems
from tunec.schemas.caches import forget
from tunec.schemas.frozen import replace

_MUCH: Final = 500
"""Results that a cache of what one spec asks for keeps between edits."""


class Open(NamedTuple):
    """A file as it is open."""

    text: str
    version: int | None = None
    """As the editor counts them."""


class Desk:
    """Open files by where they lie. Texts change at any time; the rest, one call after another.

    What only looks may look in between: it goes over a copy.
    """

    def __init__(self, registry: Registry, encoding: str = "utf-16") -> None:
        self.registry = registry
        self.encoding = encoding
        self.open: dict[Path, Open] = {}
        self.analyses: dict[Path, Analysis] = {}
        self._sources: dict[tuple[Path, ...], OwnSource] = {}
        self.versions: dict[Path, int | None] = {}
        """The version that each analysis is of."""
        self._committed: dict[Path, Committed] = {}
        self._shown: dict[Path, frozenset[Path]] = {}
        """The files in which what is known of one was shown last."""

    def around(self) -> Surroundings:
        """What an analysis may know, as it is now."""
        return Surroundings(self.registry, unsaved(self._texts()), self._sources)

    def analyse(self, path: Path) -> Analysis | None:
        """Read one file anew as it is open; None if it no longer is."""
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
        """Look for what would make an open spec fit; whether anything was found."""
        analysis = self.analyses.get(path)
        if analysis is None or analysis.text != self.text(path).text:
            return False
        found = repaired(analysis, self.around())
        if found is not None:
            self.analyses[path] = found
        return found is not None

    def changes(self, path: Path) -> Changes | None:
        """What an open spec changes against the last commit."""
        analysis = self.analyses.get(path)
        if analysis is None or analysis.planned is None:
            return None
        found = committed(analysis, self.around(), self._committed.get(path))
        if found is None:
            return None
        self._committed[path] = found
        return changes(found.analysis, analysis)

    def _texts(self) -> dict[Path, str]:
        return {path: file.text for path, file in list(self.open.items())}

    def disk_changed(self) -> None:
        """Forget what was read of files that are not open."""
        self._sources.clear()

    def close(self, path: Path) -> None:
        """Forget a file that is no longer open."""
        for table in (self.open, self.analyses, self.versions, self._committed):
            table.pop(path, None)

    def dependents(self, path: Path) -> tuple[Path, ...]:
        """Other open files for which a file is read."""
        return tuple(
            each
            for each, analysis in list(self.analyses.items())
            if each != path and path in set(_files(analysis))
        )

    def seen(self, path: Path) -> Analysis | None:
        """What is known of an open file; of a config that another one names, together with that."""
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
        """A file as it is open; empty for one that is not."""
        return Text(self.open[path].text if path in self.open else "", self.encoding)

    def to_show(self, path: Path) -> dict[Path, list[Diagnostic]]:
        """What is to be shown after a file was read or closed, in each file that this concerns."""
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
        """Whose diagnostics are shown in a file: its own, or those of the run that reads most.

        A config that another open one names is judged with that one, not alone.
        """
        own = self.analyses.get(file)
        if own is not None and own.kind is not None:
            return own
        readers = [each for each in list(self.analyses.values()) if file in set(_files(each))]
        return max(readers, key=lambda each: (each.is_known, len(each.sources)), default=None)


def _files(analysis: Analysis) -> Iterator[Path]:
    """The files that were read for an analysis, by where they lie."""
    for name in analysis.sources:
        if not name.startswith("<"):
            yield Path(os.path.realpath(name))
