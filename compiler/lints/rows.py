"""Rules made of rows: conditions on what is written, and the texts of the finding.

Most faults have one of a few shapes: a value that is refused, a key that is ignored under a
condition, two keys that exclude each other, one that needs another. Each is a row of conditions
(`tunec.compiler.lints.conditions`) with its texts. In the texts, `{0.key}` is the last part of the
key that the row is about, `{0.path}` the whole path and `{0.value}` its value; numbers from 1 are
the other conditions that hold, in the order of the row.
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
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.schemas.frozen import replace

SLOT: Final = "slot"
"""The kind of a condition on a slot of the run, as in `slot:parallel.world>1`."""


class Mend(Struct, frozen=True):
    """The edit that fixes a finding: exactly one of `remove`, `write` and `rename`."""

    applicability: Applicability
    remove: bool = False
    """Remove the key and its value."""
    write: Any = None
    """Replace the value with this one."""
    rename: str = ""
    """Rename the key to this name."""
    at: int = 0
    """The index of the row's place that is edited."""

    def fix(self, places: Sequence["_Met"]) -> Fix | None:
        """The fix; None if the place to edit is in no file."""
        place = places[self.at].place
        if place is None:
            return None
        if self.remove:
            return Fix((place.removed(),), self.applicability)
        edit = place.renamed(self.rename) if self.rename else place.replaced(self.write)
        return Fix((edit,), self.applicability)


class Row(Struct, frozen=True):
    """One row of a rule: a fault's conditions, and the texts of its finding."""

    when: str
    """The condition on a written key, with its kind: `trainer:save_total_limit<=0`. Its first key
    has the primary label; every place where the condition holds is a finding."""
    message: str
    label: str = ""
    why: str | tuple[str, ...] = ()
    """What actually happens."""
    help: str | None = None
    mend: Mend | None = None
    beside: tuple[str, ...] = ()
    """Further conditions on written keys: in the same document, or in the first document of a named
    kind."""
    effective: tuple[str, ...] = ()
    """Conditions on values after defaults are filled in, each with its kind, or on a `slot`."""
    beside_label: str = ""
    """The label at the written keys of the further conditions."""
    since: str = ""
    """The releases with the fault (`axolotl>=0.19`); empty: every release. If the release is not
    given, the finding is a warning that names these releases."""
    by_effective: bool = False
    """Whether `when` tests the effective value of a key that a document sets: `auto` is filled in,
    and an older name of the key counts."""
    at_key: bool = False
    """Whether the label is at the key instead of its value."""
    files_only: bool = False
    """Whether views are excluded, such as the trainer's keys in an Axolotl file."""
    consequence: Consequence | None = None
    """The consequence, if it differs from the rule's."""
    severity: Severity | None = None


class Form(Struct, frozen=True):
    """A common sentence about two keys; a call returns the row of two conditions."""

    kind: str
    message: str
    label: str = "refused"
    lacks: bool = False
    """Whether the second condition must be absent."""
    at_key: bool = False

    def __call__(self, when: str, other: str, why: str, help: str, **more: Any) -> Row:
        """The row; `more` sets further fields of the row."""
        beside = f"no {other}" if self.lacks else other
        row = Row(f"{self.kind}:{when}", self.message, self.label, why, help, beside=(beside,))
        return replace(row, at_key=self.at_key, **more)


class _Met(Struct, frozen=True):
    """A condition that holds, with the attributes that texts use."""

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
        """The value as text; booleans are in lower case."""
        return str(self.raw).lower() if isinstance(self.raw, bool) else str(self.raw)


def rows(
    name: str,
    severity: Severity,
    consequence: Consequence,
    *,
    consumers: tuple[str, ...],
    rows: tuple[Row, ...],
) -> Rule:
    """Make a rule of rows; the other arguments are the fields of `Rule`."""
    reads, check = reads_of(rows), partial(found, rows)
    return Rule(name, severity, consequence, consumers, reads, hardware=False, check=check)


def reads_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """The keys that rows read, for the `reads` of a rule that is partly code."""
    return tuple(dict.fromkeys(key for row in rows for key in _reads(row)))


def _reads(row: Row) -> Iterator[str]:
    first = parse(row.when)[0]
    older = [OLDER_NAMES[key] for key in first.keys if key in OLDER_NAMES]
    keys = (*first.keys, *older) if row.by_effective else first.keys
    return (f"{kind}:{key}" for kind in first.kinds for key in keys)


def found(rows: Sequence[Row], run: LintContext) -> Iterator[Finding]:
    """The findings of rows in a run; a rule that is partly code calls it for its rows."""
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
    """All conditions if every one holds, else None; `no key` holds without a place."""
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
