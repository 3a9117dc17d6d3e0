"""Rows of one consumer inside another's file: under a prefix, checked by their own schema."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.emit import validator, write_values
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Dialect, Entry, Json
from tunec.schemas.frozen import replace

SchemaOf = Callable[[Dialect], str | None]
Check = Callable[[Plan, Dialect], Iterable[Diagnostic]]


def below(prefix: str, entry: Entry) -> Entry:
    """A copy of a row whose keys stand in a block of the file, below `prefix`."""
    dotted = f"{prefix}."

    def write(plan: Plan) -> Mapping[str, Json]:
        return {dotted + key: value for key, value in entry.write(plan).items()}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        return entry.read({key.removeprefix(dotted): value for key, value in found.items()})

    return replace(entry, keys=tuple(dotted + key for key in entry.keys), write=write, read=read)


def without(entries: Iterable[Entry], *names: str) -> tuple[Entry, ...]:
    """The rows that neither write one of the keys nor say one of the slots in `names`."""
    return tuple(each for each in entries if not {*each.keys, *each.slots}.intersection(names))


def within(entries: Iterable[Entry], releases: Iterable[str]) -> tuple[Entry, ...]:
    """The rows that some release of the target's own package knows."""
    versions = [Version(each) for each in releases]
    return tuple(each for each in entries if any(each.holds_at(version) for version in versions))


def checked(
    name: str,
    entries: Sequence[Entry],
    block: str,
    schema: SchemaOf,
    *,
    others: Callable[[str], bool] = lambda _: True,
) -> Check:
    """A check of the block of a file by a schema that holds for it alone.

    Of the block's keys those count which `others` admits: a command line mixes two classes' flags.
    """

    def check(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
        rows = (each for each in entries if each.holds_in(dialect) and each.when(plan))
        found = write_values(rows, plan).get(block)
        path = schema(dialect)
        if path is None or not isinstance(found, Mapping):
            return
        values = {key: value for key, value in found.items() if others(key)}
        for fault in validator(path).iter_errors(values):
            yield _fault(name, block, path, fault)

    return check


def _fault(name: str, block: str, schema: str, fault: Any) -> Diagnostic:
    where = ".".join(str(part) for part in (block, *fault.absolute_path))
    return Diagnostic(
        "E0904",
        "error",
        f"{name} is not valid for its reader: {fault.message}",
        (Label("in the emitted file", path=where),),
        (f"by the reader's own schema, {schema}",),
    )


def every(*checks: Check) -> Check:
    """All checks of a file, one after the other."""

    def check(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
        for each in checks:
            yield from each(plan, dialect)

    return check
