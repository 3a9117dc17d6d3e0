"""The findings of rules in files that tunec is about to write, cached over a fleet's specs.

Clusters differ in much that no file contains. A rule declares whether it reads the hardware
(`Rule.hardware`); the findings of other rules are the same wherever the files are used.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Struct, field
from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.facts import Facts, ResolvedModel
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.likeness import Likeness
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.values import show
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.index import rules_for
from tunec.compiler.lints.kinds import kind_by_class, kind_of
from tunec.compiler.lints.rule import Rule, findings_of, is_elsewhere
from tunec.compiler.lints.views import views
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact, Dialect, Entry, File, Target
from tunec.schemas.caches import BoundedCache
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span, start_of

if TYPE_CHECKING:
    from tunec.compiler.lints.formats import Parsed

EXEMPT: Final = {
    "device-memory-exceeded": "the pass `fit` has already applied this memory account to the plan",
    "device-older-than-torch": "the plan's torch is a build that has the device's kernels, and a "
    "release without one is refused; a note says where the build comes from",
    "fp16-refused-by-deepspeed": "the precision pass refuses it itself, unless the spec sets "
    "precision.deprecated_fp16, which the launch files express and the ds_config cannot",
    "image-longer-than-sequence": "the plan's sequence holds the images that the spec names, in "
    "their size; what the files say bounds neither",
    "longer-than-context": "the data pass reports a sequence beyond the context itself",
    "machines-without-address": "known when the machines are; launch.sh passes --main_process_ip",
}
"""Rules that are not checked here, with the reason."""


def software_of(target: Target, version: Version, named: Mapping[str, str]) -> dict[str, str]:
    """The version of each package that files are written for: the given ones, and the dialect's."""
    dialect = target.dialect(version, named)
    return {**named, **{name: str(each) for name, each in dialect.items() if name}}


def environment_of(target: Target, version: Version, facts: Facts, plan: Plan) -> Environment:
    """The surroundings of a plan's files, with only the devices that the plan uses."""
    return around(target, software_of(target, version, _named(facts, plan)), facts, plan)


def _named(facts: Facts, plan: Plan) -> dict[str, str]:
    """The given versions, with the torch version of the bundle's requirements."""
    torch = (plan.job.torch or "").partition("+")[0]
    return {**facts.versions, **({"torch": torch} if torch else {})}


def around(target: Target, software: Mapping[str, str], facts: Facts, plan: Plan) -> Environment:
    """The surroundings of a plan's files, with given package versions."""
    used = {name: each for name, each in facts.devices.items() if name == plan.devices.model}
    devices = used or facts.devices
    world = plan.parallel.world
    return Environment(
        facts.cluster,
        devices,
        world,
        facts.model,
        software=software,
        has_text_alone=plan.data.images == 0,
        readers=(target.name,),
    )


class DecidedRun(LintContext, frozen=True, eq=False, dict=True, kw_only=True):
    """Files that are about to be written, with the plan's decided slots.

    Rules that read a slot get the decided value, not the value read back from the files.
    """

    OF_FILES: ClassVar[tuple[str, ...]] = (*LintContext.OF_FILES, "_tables", "_decided", "_rows")

    plan: Plan

    def place(self, definition: Definition | None) -> Place | None:
        """The key that carries a slot; None if no written key does."""
        rows = () if definition is None else self._rows_of(definition.slot)
        return next((place for _, place in reversed(rows) if place is not None), None)

    def written_of(self, path: str) -> tuple[Definition, ...]:
        """The decided value of a slot, once for each row that carries the slot."""
        if path not in self._decided:
            # flags win over the file that a program is given beside them
            rows = sorted(self._rows_of(path), key=lambda each: each[0].format != "shell")
            together = (each for each in self.together() if each.slot == path)
            decided = (self._definition(path, *row) for row in rows)
            self._decided[path] = (*decided, *together)
        return self._decided[path]

    @cached_property
    def _decided(self) -> dict[str, tuple[Definition, ...]]:
        return {}

    def _definition(self, slot: str, document: Document, place: Place | None) -> Definition:
        rank, span = (Rank.CONSUMER, None) if place is None else (Rank.OBSERVED, place.span)
        why = "it was decided"
        return Definition(slot, self.plan[slot], rank, document.name, why, span=span)

    def _rows_of(self, slot: str) -> tuple[tuple[Document, Place | None], ...]:
        """The files with a row for a slot, each with the first written key of the row."""
        if slot not in self._rows:
            self._rows[slot] = tuple(
                (document, next(filter(None, map(document.get, row.keys)), None))
                for document, table in self._tables
                for row in table.rows.get(slot, ())
            )
        return self._rows[slot]

    @cached_property
    def _rows(self) -> dict[str, tuple[tuple[Document, Place | None], ...]]:
        return {}

    def slots_at(self, label: Label) -> tuple[str, ...]:
        """The slots that a place in the files carries, by the rows that hold in their release."""
        name = None if label.span is None else label.span.file
        tables = (table for document, table in self._tables if document.name == name)
        return tuple(dict.fromkeys(slot for each in tables for slot in each.slots_at(label.path)))

    @cached_property
    def _tables(self) -> tuple[tuple[Document, "Table"], ...]:
        """Each file with the rows that hold in its release."""
        software = self.environment.software
        return tuple(
            (each, table_of(each.file, each.target.dialect(version, software)))
            for each in self.documents
            if each.target is not None and each.file is not None
            for version in (self.release(each.target.package).version,)
        )


class Table(Struct, frozen=True):
    """The rows of a file that hold in a dialect."""

    rows: Mapping[str, Sequence[Entry]]
    """Rows by each slot that they carry."""
    keys: Mapping[str, Sequence[str]]
    """The slots that each key carries."""
    blocks: Mapping[str, Sequence[str]]
    """The slots that the keys of each block carry."""
    flags: str
    """The block that holds the arguments a script gives to its program."""

    def slots_at(self, path: str) -> Sequence[str]:
        """The slots of a key, of a block's keys, or of the nearest key around a path."""
        for each in (path, f"{self.flags}.{path}"):
            if each in self.keys or each in self.blocks:
                return (*self.keys.get(each, ()), *self.blocks.get(each, ()))
        return next((self.keys[each] for each in _around(path) if each in self.keys), ())


def _around(path: str) -> Iterator[str]:
    """The blocks that contain a key, nearest first: `a.b` and `a` for `a.b[0].c`."""
    while path:
        path = path.rpartition(".")[0]
        yield path.partition("[")[0]


_TABLES: Final = BoundedCache[Table]("compiler.lints.emission.tables", 256, lasting=True)


def table_of(file: File, dialect: Dialect) -> Table:
    """The rows of a file that hold in a dialect, by slot and by key."""
    return _TABLES.of((file, dialect), (), partial(_table_of, file, dialect))


def _table_of(file: File, dialect: Dialect) -> Table:
    rows: dict[str, list[Entry]] = {}
    keys: dict[str, list[str]] = {}
    blocks: dict[str, list[str]] = {}
    for row in (each for each in file.entries if each.holds_in(dialect)):
        for slot in row.slots:
            rows.setdefault(slot, []).append(row)
        for key in row.keys:
            keys.setdefault(key, []).extend(row.slots)
            for block in _around(key):
                blocks.setdefault(block, []).extend(row.slots)
    return Table(rows, keys, blocks, file.block[0] if file.block else "")


def run_of(
    target: Target, artifacts: Iterable[Artifact], environment: Environment, plan: Plan
) -> DecidedRun:
    """The files of one target as one run, with the plan that they are written from."""
    written = (each for one in artifacts for each in documents_of(target, one))
    every = tuple(one for each in written for one in (each, *views(each)))
    return DecidedRun(every, environment, {target.name: target}, plan=plan)


def documents_of(target: Target, artifact: Artifact) -> Iterable[Document]:
    """The documents of a target's file, as they would be read; a script may have several."""
    file = next(each for each in target.files if each.name == artifact.name)
    if artifact.format not in ("json", "yaml"):
        return _of_script(artifact.name, artifact.text, target)
    root = _node(artifact.values, start_of(artifact.name))
    kind = kind_of(target, file)
    return (Document(artifact.name, kind, artifact.format, artifact.text, root, target, file),)


def _of_script(name: str, text: str, target: Target) -> Iterator[Document]:
    """The documents of a script that a target writes: the launcher's and the program's flags."""
    from tunec.compiler.lints.formats import parse_text
    from tunec.compiler.lints.recognition import recognised

    for each in parse_text(name, text)[0]:
        known = recognised(each, {target.name: target}, (target.name,))
        own, file, kind = known or (None, None, _kind_without_table(each))
        if kind is not None:
            yield Document(
                name, kind, each.format, each.text, each.root, own, file, unknown=each.unknown
            )


def _kind_without_table(part: "Parsed") -> str | None:
    """The kind of a script's part that no table of the target reads."""
    from tunec.compiler.frontend.shell_references import SCRIPTS

    if part.part == "launcher":
        return "launch"
    if part.reader in SCRIPTS:
        return part.reader
    return kind_by_class(frozenset(part.root.fields or ()))


def _node(value: Any, file: Span) -> Node:
    """Data as a node tree in which every key has the file's start as its span."""
    if isinstance(value, dict):
        fields = {key: _node(each, file) for key, each in value.items()}
        return Node(file, key_span=file, fields=fields)
    if isinstance(value, list | tuple):
        return Node(file, key_span=file, items=tuple(_node(each, file) for each in value))
    return Node(file, value, file)


def objections(
    asked: Asked, artifacts: Sequence[Artifact], facts: Facts, plan: Plan
) -> tuple[Diagnostic, ...]:
    """The errors and warnings of rules in a plan's files."""
    target, version = asked
    run = run_of(target, artifacts, environment_of(target, version, facts, plan), plan)
    return told_of(spoken_by(run), run)


def spoken_by(run: LintContext) -> Iterator[Diagnostic]:
    """The findings in a run of every rule that is not exempt."""
    return (found for rule in asked_of(run) for found in findings_of(rule, run))


def asked_of(run: LintContext) -> Iterator[Rule]:
    """The rules that apply to a run, by its kinds and versions, and are not exempt."""
    for rule in rules_for(run.kinds, run.keys):
        if rule.name not in EXEMPT and not is_elsewhere(rule, run):
            yield rule


def told_of(found: Iterable[Diagnostic], run: DecidedRun) -> tuple[Diagnostic, ...]:
    """Findings at keys turned into findings at slots, each once; notes are left out."""
    told: dict[tuple[str, str], Diagnostic] = {}
    for each in (_at_slots(each, run) for each in found if each.severity != "note"):
        key = each.id, each.message
        told[key] = each if each.labels else told.get(key, each)
    return tuple(told.values())


def _at_slots(found: Diagnostic, run: DecidedRun) -> Diagnostic:
    """A finding at a file's key, moved to the slots that the key carries."""
    slots = tuple(dict.fromkeys(slot for each in found.labels for slot in run.slots_at(each)))
    values = [f"{slot} is {show(slot, run.plan[slot])}" for slot in slots]
    names = dict.fromkeys(each.span.file for each in found.labels if each.span is not None)
    return replace(
        found,
        labels=tuple(Label("decided here", path=slot) for slot in slots),
        notes=(f"in {', '.join(names)} of {', '.join(run.targets)}", *found.notes, *values),
        help=_help(found, slots),
        fix=None,
    )


def _help(found: Diagnostic, slots: Sequence[str]) -> str:
    if slots:
        return f"pin another value of {' or '.join(slots)}, or change what the spec says of it"
    return found.help or "choose another target, or another version of it"


class _Judged(Struct, frozen=True):
    """Checked files, with everything that their findings depend on except hardware."""

    artifacts: Sequence[Artifact]
    model: ResolvedModel
    run: DecidedRun
    found: tuple[Diagnostic, ...]
    """Findings of the rules that do not read the hardware."""
    of_hardware: tuple[Rule, ...]

    def on(self, environment: Environment) -> list[Diagnostic]:
        """The findings of every rule on the hardware of an environment, in the order of rules."""
        run = self.run.moved(environment)
        found = (each for rule in self.of_hardware for each in findings_of(rule, run))
        return sorted((*self.found, *found), key=lambda each: each.id)


class FindingsCache(Struct):
    """Caches the findings in the files of one spec."""

    _judged: dict[tuple[Any, ...], _Judged] = field(default_factory=dict)
    """By the identity of files and model, which are kept alive with them, and by the plan's values
    in the slots of rows: a row whose key is left out still has its slot."""
    _software: dict[tuple[Any, ...], dict[str, str]] = field(default_factory=dict)
    """Package versions by target, version and the other given versions."""
    _rules: dict[tuple[Any, ...], tuple[Rule, ...]] = field(default_factory=dict)
    """The rules that apply to files of some kinds and keys, for the same versions."""

    _likeness: dict[tuple[Any, ...], Likeness] = field(default_factory=dict)
    """Compares plans in the slots that rules may read: those that some row carries."""

    def forget(self) -> None:
        """Clear the cache, before another spec."""
        self._judged.clear()
        self._likeness.clear()

    def objections(
        self, asked: Asked, artifacts: Sequence[Artifact], facts: Facts, plan: Plan
    ) -> tuple[Diagnostic, ...]:
        """The result of `objections`, from the cache if possible."""
        target, version = asked
        named = _named(facts, plan)
        dialect = (target.name, version, tuple(named.items()))
        if dialect not in self._software:
            self._software[dialect] = software_of(target, version, named)
        environment = around(target, self._software[dialect], facts, plan)
        files = (id(each.values) for each in artifacts)
        if dialect not in self._likeness:
            sayable = target.sayable(target.dialect(version, named))
            self._likeness[dialect] = Likeness(sayable)
        said = self._likeness[dialect].key(plan)
        key = (*dialect, id(facts.model), environment.world, *files, *said)
        if key not in self._judged:
            run = run_of(target, artifacts, environment, plan)
            rules = self._candidates(run, dialect)
            self._judged[key] = _judge(artifacts, facts.model, run, rules)
        judged = self._judged[key]
        return told_of(judged.on(environment), judged.run)

    def _candidates(self, run: LintContext, dialect: tuple[Any, ...]) -> tuple[Rule, ...]:
        key = (*dialect, run.kinds, run.keys)
        if key not in self._rules:
            self._rules[key] = tuple(asked_of(run))
        return self._rules[key]


def _judge(
    artifacts: Sequence[Artifact], model: ResolvedModel, run: DecidedRun, rules: Sequence[Rule]
) -> _Judged:
    found = (each for rule in rules if not rule.hardware for each in findings_of(rule, run))
    of_hardware = tuple(rule for rule in rules if rule.hardware)
    return _Judged(artifacts, model, run, tuple(found), of_hardware)
