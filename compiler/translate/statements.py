"""The slots that documents set, with their programs' defaults in the run that they configure.

A row for another engine or method does not apply to this run, so its defaults do not count.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.ir.ledger import Definition, Ledger, Rank
from tunec.compiler.ir.plan import SlotNotSet
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.read import WRONG_SHAPE, read_rows
from tunec.compiler.target import Dialect, Entry, Target, in_every_plan, in_no_plan
from tunec.compiler.translate.partial import Partial
from tunec.schemas.frozen import replace

_Row = tuple[Entry | None, Definition]


def dialect_of(run: LintContext, target: Target) -> Dialect:
    """The versions by which a document of a target is read."""
    software = {name: str(each.version) for name, each in run.releases.items()}
    return target.dialect(run.release(target.package).version, software)


def said_by(run: LintContext) -> Iterator[_Row]:
    """Every definition by a document, with its row; None: several keys set it together."""
    for document in run.documents:
        if document.target is not None and document.file is not None:
            yield from _of(run, document, document.target, document.file.name)
    tables = {each.target.name: each.target for each in run.documents if each.target}
    for name, target in tables.items():
        mine = [each for each in run.documents if each.target and each.target.name == name]
        together = {each.file.name: each.flat for each in mine if each.file}
        yield from ((None, each) for each in target.together(together))


def _of(run: LintContext, document: Document, target: Target, file: str) -> Iterator[_Row]:
    dialect = dialect_of(run, target)
    hidden = _COUNTS if _is_on_every_device(document) else frozenset[str]()
    for entry, each in read_rows(target, {file: document.flat}, dialect):
        is_written = each.rank == Rank.OBSERVED
        if is_written or each.slot not in hidden:
            yield entry, replace(each, author=document.name) if is_written else each


_COUNTS: Final = frozenset({"parallel.world", "devices.per_node"})


def _is_on_every_device(document: Document) -> bool:
    """Whether a command starts a process on each device that it finds.

    deepspeed 0.14.5 to 0.19.8 launcher/runner.py `main`: without --num_gpus.
    """
    return document.value("launcher") == "deepspeed" and "per_node" not in document.found


def with_defaults(ledger: Ledger, rows: Iterable[_Row]) -> Ledger:
    """The ledger with the defaults of applicable rows, as far as that is decided."""
    waiting = list(rows)
    while waiting:
        known = Partial({each.slot: each.value for each in ledger.winners()})
        beside = _together(waiting)
        judged = [(matters(row[0], known, beside[_owner(row)]), row) for row in waiting]
        ready = [definition for is_ready, (_, definition) in judged if is_ready]
        if not ready:
            return ledger
        ledger = ledger.add(tuple(ready))
        waiting = [row for is_ready, row in judged if not is_ready]
    return ledger


def _owner(row: _Row) -> tuple[int, str]:
    entry, definition = row
    return id(entry), definition.author


def _together(rows: Iterable[_Row]) -> Mapping[tuple[int, str], Mapping[str, Any]]:
    """The defaults of a row whose keys are absent, by row and author."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rows:
        found.setdefault(_owner(row), {})[row[1].slot] = row[1].value
    return found


def matters(entry: Entry | None, known: Partial, defaults: Mapping[str, Any]) -> bool:
    """Whether a row applies to a run with these defaults for unknown slots; true if only read."""
    if entry is None or entry.when in (in_every_plan, in_no_plan):
        return True
    try:
        return Partial({**defaults, **known.values}, known.possible).ask(entry.when)
    except (SlotNotSet, *WRONG_SHAPE):
        return False
