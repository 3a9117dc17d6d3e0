"""Rules that are rows: what is written, what holds beside it, and the sentence that says so.

Most faults have one of few shapes: a value that is refused, a key that is ignored under a
condition, two keys that exclude each other, one that needs another. Each is a row of conditions
(`tunec.compiler.lints.conditions`) with its texts. In these, `{0.key}` is the last part of the key
that the row is about, `{0.path}` the whole and `{0.value}` its value; 1 and up are those that hold
beside it, in the order of the row.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Applicability, Fix, Severity
from tunec.compiler.lints.conditions import Condition, is_checked, notes, parse, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.effective import OLDER_NAMES
from tunec.compiler.lints.rule import Consequence, Finding, Rule, rule
from tunec.schemas.frozen import replace

SLOT: Final = "slot"
"""The kind of a condition on what a run comes to, as in `slot:parallel.world>1`."""


class Mend(Struct, frozen=True):
    """The edit that mends a finding: exactly one of the three."""

    applicability: Applicability
    remove: bool = False
    """Take the key and its value out."""
    write: Any = None
    """Write this value in place of the one that stands there."""
    rename: str = ""
    """Give the key this name."""
    at: int = 0
    """Which of the row's places is edited."""

    def fix(self, places: Sequence["_Met"]) -> Fix | None:
        """The edit; None where the place to mend stands in no file."""
        place = places[self.at].place
        if place is None:
            return None
        if self.remove:
            return Fix((place.removed(),), self.applicability)
        edit = place.renamed(self.rename) if self.rename else place.replaced(self.write)
        return Fix((edit,), self.applicability)


class Row(Struct, frozen=True):
    """One occurrence of what a rule is about."""

    when: str
    """What is written, with its kind: `trainer:save_total_limit<=0`. Its first key is where people
    look first; every place where it holds is a finding."""
    message: str
    label: str = ""
    why: str | tuple[str, ...] = ()
    """What really happens."""
    help: str | None = None
    mend: Mend | None = None
    beside: tuple[str, ...] = ()
    """What else is written: in the same document, or in the first of another kind that is named."""
    effective: tuple[str, ...] = ()
    """What else holds once defaults are filled in, each with its kind, or of a `slot`."""
    beside_label: str = ""
    """The label at what holds beside, where it is written."""
    since: str = ""
    """The releases that do so (`axolotl>=0.19`); empty where every one does. Where nobody names
    the release, the finding is a warning that says since when."""
    by_effective: bool = False
    """Whether `when` is asked of what its key comes to, where a document says it: `auto` is filled
    in then, and an older name of the key counts."""
    at_key: bool = False
    """Whether the label stands at the key, and not at its value."""
    files_only: bool = False
    """Whether keys that another reader hands on, as Axolotl its trainer's, are left out."""
    consequence: Consequence | None = None
    """Where it differs from the rule's own."""
    severity: Severity | None = None


class Form(Struct, frozen=True):
    """Rows that say one sentence of two keys; called, it is the row of two conditions."""

    kind: str
    message: str
    label: str = "refused"
    lacks: bool = False
    """Whether the second condition is what does not hold beside the first."""
    at_key: bool = False

    def __call__(self, when: str, other: str, why: str, help: str, **more: Any) -> Row:
        """The row; `more` are further fields of it."""
        beside = f"no {other}" if self.lacks else other
        row = Row(f"{self.kind}:{when}", self.message, self.label, why, help, beside=(beside,))
        return replace(row, at_key=self.at_key, **more)


class _Met(Struct, frozen=True):
    """A condition that holds, as texts show it."""

    path: str
    raw: Any
    place: Place | None
    is_shown: bool = True

    @property
    def key(self) -> str:
        """The last part of the key."""
        return self.path.rpartition(".")[2]

    @property
    def value(self) -> str:
        """The value as it is written in a file."""
        return str(self.raw).lower() if isinstance(self.raw, bool) else str(self.raw)


def rows(
    name: str,
    severity: Severity,
    consequence: Consequence,
    *,
    consumers: tuple[str, ...],
    rows: tuple[Row, ...],
) -> Rule:
    """A rule that is rows; the other arguments are the fields of `Rule`."""
    reads = reads_of(rows)
    made = rule(name, severity, consequence, consumers=consumers, reads=reads)
    return made(partial(found, rows))


def reads_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """What rows read, for the `reads` of a rule that is partly code."""
    return tuple(dict.fromkeys(key for row in rows for key in _reads(row)))


def _reads(row: Row) -> Iterator[str]:
    first = parse(row.when)[0]
    older = [OLDER_NAMES[key] for key in first.keys if key in OLDER_NAMES]
    keys = (*first.keys, *older) if row.by_effective else first.keys
    return (f"{kind}:{key}" for kind in first.kinds for key in keys)


def found(rows: Sequence[Row], run: LintContext) -> Iterator[Finding]:
    """What rows find in a run: a rule that is partly code asks its own rows so."""
    return (each for row in rows if is_checked(run, row.since) for each in _found(row, run))


def _found(row: Row, run: LintContext) -> Iterator[Finding]:
    first, *rest = parse(row.when)
    every = [*rest, *(part for each in row.beside for part in parse(each))]
    asked = _effective_places(first, run) if row.by_effective else _places(first, run)
    for document, met, place in asked:
        if row.files_only and document.is_view:
            continue
        written = (_beside(each, document, run) for each in every)
        settled = (_effective(part, run) for each in row.effective for part in parse(each))
        others = _all(chain(written, settled))
        if others is not None:
            yield _finding(row, run, place, [met, *others])


Asked = tuple[Document, _Met, Place]
"""Where a row's first condition holds; a place of a view stands in another document, its origin."""


def _places(part: Condition, run: LintContext) -> Iterator[Asked]:
    for document in run.of(*part.kinds):
        yield from ((document, _Met(at.path, at.value, at), at) for at in part.places(document))


def _effective_places(part: Condition, run: LintContext) -> Iterator[Asked]:
    met = _effective(part, run)
    place = None if met is None else met.place
    if met is not None and place is not None:
        holders = (each for each in run.of(*part.kinds) if place in each.found.values())
        yield next(holders, place.document), met, place


def _all(met: Iterable[_Met | None]) -> list[_Met] | None:
    """Those that hold, or None from the first on that does not; `no key` holds without a place."""
    found = list[_Met]()
    for each in met:
        if each is None:
            return None
        found.append(each)
    return found


def _beside(part: Condition, document: Document, run: LintContext) -> _Met | None:
    documents = run.of(*part.kinds) if part.kinds else (document,)
    if part.is_negated:
        is_absent = all(map(part.is_absent, documents))
        return _Met(part.keys[0], None, None) if is_absent else None
    found = next((at for each in documents if (at := part.place(each)) is not None), None)
    return None if found is None else _Met(found.path, found.value, found, part.is_shown)


def _effective(part: Condition, run: LintContext) -> _Met | None:
    for key in part.keys:
        if part.kinds == (SLOT,):
            said = run.slot(key)
            value, place = (None, None) if said is None else (said.value, run.place(said))
        else:
            (kind,) = part.kinds
            settled = run.effective(kind, key)
            value, place = settled.value, settled.place
        if value is not None and part.holds(value):
            return _Met(key, value, place, part.is_shown)
    return None


def _finding(row: Row, run: LintContext, place: Place, met: Sequence[_Met]) -> Finding:
    shown = [each.place for each in met if each.is_shown and each.place != place]
    labels = (label for each in shown for label in also(each, row.beside_label))
    why = (row.why,) if isinstance(row.why, str) else row.why
    late = notes(run, "", row.since)
    return Finding(
        row.message.format(*met),
        (place.key_label(row.label) if row.at_key else place.label(row.label), *labels),
        (*(each.format(*met) for each in why), *late),
        None if row.help is None else row.help.format(*met),
        None if row.mend is None else row.mend.fix(met),
        consequence=row.consequence,
        severity=row.severity or severity(run, row.since),
    )
