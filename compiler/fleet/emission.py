"""Emission for many plans: files that depend on equal values of the same slots are written once.

Emission is a pure function of the plan, and so is each of its files. While it runs, the plan
records which slots are read. Another plan of the same spec with equal values in those slots would
give the same result, so the result is taken from a cache. Clusters differ in many facts that no
file contains.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Self, TypeVar, cast

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.emit import Draft, RowOutput, drafted, emit, rows_of, said_by
from tunec.compiler.facts import Facts
from tunec.compiler.ir.likeness import Likeness
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.recollection import Recollection, WatchedPlan
from tunec.compiler.lints.emission import FindingsCache
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact, Dialect, Entry, File

_Result = TypeVar("_Result")


class Alike(Generic[_Result]):
    """Results of one function, by the values of the slots that it read."""

    def __init__(self) -> None:
        self._known: Recollection[str, _Result] = Recollection()
        self._slots: dict[str, None] = {}
        """The slots that affect some result."""
        self._likeness = Likeness(())
        self._results: dict[tuple[int, ...], _Result] = {}

    def recall(self, plan: Plan) -> _Result | None:
        """The result for a plan that answers as an earlier one did; None: there was none."""
        key = self._likeness.key(plan)
        found = self._results.get(key)
        if found is None:
            found = self._known.recall(plan.__getitem__)
            if found is not None:
                self._results[key] = found
        return found

    def keep(self, plan: Plan, asked: Mapping[str, Any], result: _Result) -> None:
        """Store a result with the slots that were read, in order, and their values."""
        self._known.keep(asked, result)
        if not self._slots.keys() >= asked.keys():
            self._slots |= dict.fromkeys(asked)
            self._likeness = Likeness(self._slots)
            self._results.clear()
        self._results[self._likeness.key(plan)] = result


_HEADER: Final = "tunec: the header of this plan"
"""Placeholder in a cached text for the header of each plan."""

_MOST_SAID: Final = 512
"""Most cached results of a row when the next spec begins."""

Emitted = tuple[tuple[Artifact, ...], tuple[Diagnostic, ...]]


class _Rows(Struct):
    """The rows of a file in one dialect, with cached results of each by the slots that it reads."""

    rows: tuple[tuple[Entry, Recollection[str, RowOutput]], ...]

    @classmethod
    def of(cls, file: File, dialect: Dialect) -> Self:
        """The rows that hold in a dialect."""
        return cls(tuple((each, Recollection()) for each in rows_of(file, dialect)))

    def said(self, plan: Plan, dialect: Dialect, asked: dict[str, Any]) -> Iterator[RowOutput]:
        """The result of each row for a plan; adds the slots that were read to `asked`."""
        ask = _asking(plan, asked)
        for entry, known in self.rows:
            found = known.recall(ask)
            if found is None:
                watched = WatchedPlan(plan)
                found = said_by(entry, cast("Plan", watched), dialect)
                known.keep(watched.asked, found)
                asked.update(watched.asked)
            yield found


def _asking(plan: Plan, asked: dict[str, Any]) -> Callable[[str], Any]:
    """A function that reads slots of a plan, and records which."""

    def ask(slot: str) -> Any:
        if slot not in asked:
            asked[slot] = plan[slot]
        return asked[slot]

    return ask


class _Dialect(Struct):
    """Cached results for one dialect of a target, by the slots that were read."""

    whole: Alike[Emitted] = field(default_factory=Alike)
    files: dict[str, Recollection[str, Draft]] = field(default_factory=dict)
    rows: dict[str, _Rows] = field(default_factory=dict)

    def drafted(self, file: File, plan: Plan, dialect: Dialect, header: Sequence[str]) -> Draft:
        """A file of a plan, as `draft_of` writes it."""
        known = self.files.setdefault(file.name, Recollection())
        found = known.recall(plan.__getitem__)
        if found is None:
            if file.name not in self.rows:
                self.rows[file.name] = _Rows.of(file, dialect)
            asked: dict[str, Any] = {}
            said = self.rows[file.name].said(plan, dialect, asked)
            found = drafted(file, tuple(said), dialect, header)
            known.keep(asked, found)
        return found

    def forget(self) -> None:
        """Drop cached files; keep the results of rows, unless there are many."""
        self.whole = Alike()
        self.files.clear()
        for each in self.rows.values():
            each.rows = tuple(
                (entry, known if known.size < _MOST_SAID else Recollection())
                for entry, known in each.rows
            )


class Emissions(Struct):
    """Cached emissions for one spec at a time, by target and version."""

    _spec: str = ""
    _known: dict[tuple[Any, ...], _Dialect] = field(default_factory=dict)
    _judged: FindingsCache = field(default_factory=FindingsCache)

    def emit(
        self,
        spec: str,
        asked: Asked,
        plan: Plan,
        software: Mapping[str, str],
        header: tuple[str, ...],
    ) -> Emitted:
        """Write a plan of a spec as a target's files, as `emit` does."""
        self.begin(spec)
        target, version = asked
        key = (target.name, version, tuple(software.items()))
        if key not in self._known:
            self._known[key] = _Dialect()
        known = self._known[key]
        found = known.whole.recall(plan)
        if found is None:
            watched = WatchedPlan(plan)
            found = emit(
                target,
                cast("Plan", watched),
                version,
                software=software,
                header=(_HEADER,),
                drafting=known.drafted,
            )
            known.whole.keep(plan, watched.asked, found)
        artifacts, diagnostics = found
        return tuple(_with_header(each, header) for each in artifacts), diagnostics

    def begin(self, spec: str) -> bool:
        """Drop the files of the previous spec, if this is another one; return whether it is."""
        is_other = spec != self._spec
        if is_other:
            for each in self._known.values():
                each.forget()
            self._judged.forget()
            self._spec = spec
        return is_other

    def objections(
        self, asked: Asked, artifacts: Sequence[Artifact], facts: Facts, plan: Plan
    ) -> tuple[Diagnostic, ...]:
        """The findings of lint rules in the emitted files."""
        return self._judged.objections(asked, artifacts, facts, plan)


def _with_header(artifact: Artifact, header: tuple[str, ...]) -> Artifact:
    """The text with this plan's header instead of the placeholder."""
    before, mark, after = artifact.text.partition(_HEADER)
    if not mark:
        return artifact
    margin = before[before.rfind("\n") + 1 :]
    text = f"{before}{f'{chr(10)}{margin}'.join(header)}{after}"
    return Artifact(artifact.name, artifact.format, text, artifact.values)
