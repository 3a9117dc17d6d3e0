"""Keys without a slot, or whose value has no effect."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal

from msgspec import Struct

from tunec.compiler.emit import schema
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.ir.plan import SlotNotSet
from tunec.compiler.ir.values import is_same
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.effective import default_of
from tunec.compiler.read import WRONG_SHAPE, settle
from tunec.compiler.target import Dialect, Entry, in_no_plan
from tunec.compiler.translate.partial import Partial
from tunec.compiler.translate.statements import dialect_of
from tunec.schemas.caches import ByIdentity
from tunec.schemas.source import start_of

_AUTO: Final = "auto"
_STARTING: Final = ("launch", "slurm", "accelerate")
MEETING: Final = frozenset(
    {
        *("nproc_per_node", "nnodes", "num_processes", "num_machines", "num_gpus", "num_nodes"),
        *("include", "hostfile", "no_ssh", "standalone", "node_rank", "machine_rank"),
        *("master_addr", "master_port", "main_process_ip", "main_process_port", "rdzv_backend"),
        *("rdzv_endpoint", "rdzv_id", "rdzv_conf", "module", "m", "config_file", "launcher"),
        *("num_accelerators", "deepspeed_config_file", "multi_gpu", "use_deepspeed"),
        *("same_network",),
    }
)
"""Flags of launchers for the number of processes, their rendezvous, and further files: torch 2.13.0
distributed/run.py; deepspeed 0.14.5 to 0.19.8 launcher/runner.py; accelerate 0.30.1 to 1.15.0
commands/launch.py. The first are read as counts; another launcher has its own flags for the
others."""


Fate = Literal[
    "said", "idle", "follows", "may follow", "filled", "meeting", "file", "default", "left"
]
"""The outcome of a key: `said` by slots; without effect (`idle`); derived by its program from other
keys in any case (`follows`), or possibly (`may follow`); `auto`, which another file fills
(`filled`); the rendezvous (`meeting`); the name of a file that was read (`file`); equal to its
absence (`default`); or none of these (`left`)."""


class Read(Struct, frozen=True):
    """A key of a file that was read, with its value and its outcome."""

    key: str
    """The key under the name that rows use."""
    place: Place
    fate: Fate
    slots: tuple[str, ...] = ()
    """The slots that it expresses, alone or with other keys."""

    @property
    def is_left(self) -> bool:
        """Whether no slot expresses it, nor what it follows from."""
        return self.fate == "left"


def reads(
    run: LintContext, document: Document, known: Partial, given: Collection[str] = ()
) -> Iterator[Read]:
    """Every leaf key of a document, with its outcome.

    `known` is what all files set: a key that its program derives from it adds nothing. `given` are
    slots of the command line, which settle keys that set them differently.
    """
    if document.target is None or document.file is None:
        return
    dialect = dialect_of(run, document.target)
    understood = _understood(document, dialect, known, given)
    for path in _misunderstood(document, dialect, known, given):
        understood.pop(path, None)
    opened = {each for entry in document.file.entries for each in _opened(entry)}
    for path, place in document.found.items():
        if place.node.fields is not None and (place.node.fields or document.format == "shell"):
            continue
        around = (each for each in _around(path) if each == path or each not in opened)
        held = next((understood[each] for each in around if each in understood), None)
        fate, slots = held or (_unsaid(run, document, path, place.value), ())
        yield Read(path, place, fate, slots)
    yield from _replaced_defaults(document, dialect, known)


def _replaced_defaults(document: Document, dialect: Dialect, known: Partial) -> Iterator[Read]:
    """Keys that a file leaves out, with their defaults, if tunec would write another value.

    The row of such a key sets no slot, and yields to a key that is passed through.
    """
    file = document.file
    path = file.schema(dialect) if file is not None and file.schema is not None else None
    fields = schema(path).get("properties", {}) if path is not None else {}
    for entry in file.entries if file is not None and fields else ():
        if entry.slots or not entry.yields or not entry.holds_in(dialect):
            continue
        for key, value in _written(entry, known).items():
            default = fields.get(key, {}).get("default")
            if key not in document.found and default is not None and not is_same(value, default):
                node = Node(start_of(document.name), default)
                yield Read(key, Place(document, key, node), "left")


def _written(entry: Entry, known: Partial) -> Mapping[str, Any]:
    """The keys that a row writes for the known slots; empty if they are not enough."""
    try:
        return known.ask(entry.write) if known.ask(entry.when) else {}
    except (SlotNotSet, *WRONG_SHAPE):
        return {}


def hidden(document: Document) -> Iterator[str]:
    """Keys without a slot whose values are only known when the script runs."""
    known = {
        key for entry in (document.file.entries if document.file else ()) for key in entry.keys
    }
    for key in sorted(document.unknown - unwritten(document)):
        if known.isdisjoint(_around(key)) and key.rpartition(".")[2] not in MEETING:
            yield key


def unwritten(document: Document) -> frozenset[str]:
    """Settings that no call of a Python script contains, though other parts of its run may."""
    if document.format != "python":
        return frozenset()
    return frozenset(
        key for key in document.unknown if key.partition(".")[0] not in document.hidden
    )


def _around(path: str) -> Iterator[str]:
    """A path and the paths of its parents."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _opened(entry: Entry) -> Iterator[str]:
    """Parent keys that a row names with some of their children: it does not express the others."""
    for key in entry.keys:
        yield from (each for each in _around(key.rpartition(".")[0]) if each in entry.keys)


def _understood(
    document: Document, dialect: Dialect, known: Partial, given: Collection[str]
) -> dict[str, tuple[Fate, tuple[str, ...]]]:
    """The keys of rows that return a slot, and keys that only matter beside theirs."""
    found: dict[str, tuple[Fate, tuple[str, ...]]] = {}
    entries = document.file.entries if document.file else ()
    for entry in sorted(entries, key=lambda each: bool(each.slots)):
        present = {key: document.flat[key].value for key in entry.keys if key in document.flat}
        if not present or not entry.holds_in(dialect):
            continue
        fate = _fate(entry, present, known, given, is_read=_reads_powers(document))
        if fate is not None:
            more = {key: found.get(key, (fate, ()))[1] + entry.slots for key in present}
            found |= {key: (fate, slots) for key, slots in more.items()}
    return found


def _fate(  # rows that give slots come last, and have their way
    entry: Entry,
    present: Mapping[str, Any],
    known: Partial,
    given: Collection[str],
    *,
    is_read: bool,
) -> Fate | None:
    if not entry.slots:
        return _following(entry, present, known)
    if all(slot in given for slot in entry.slots):
        return "said"
    return "said" if settle(entry, present, reads_powers=is_read) else None


def _misunderstood(
    document: Document, dialect: Dialect, known: Partial, given: Collection[str]
) -> Iterator[str]:
    """The keys of applicable rows that return none of their slots, as no other row does.

    Another row may have understood such a key in part: `eval_strategy: epoch` shows that there is
    an evaluation, but no number of steps.
    """
    for entry in document.file.entries if document.file else ():
        present = {key: document.flat[key].value for key in entry.keys if key in document.flat}
        is_open = not any(slot in known.values or slot in given for slot in entry.slots)
        if not (entry.slots and present and is_open and entry.holds_in(dialect)):
            continue
        held = settle(entry, present, reads_powers=_reads_powers(document))
        if _AUTO not in present.values() and not held:
            own = (key for key in present if key not in entry.beside)
            yield from own if may_matter(entry, known) else ()


def _reads_powers(document: Document) -> bool:
    return document.file is not None and document.file.reads_powers


def may_matter(entry: Entry, known: Partial) -> bool:
    """Whether a row may apply to such a run."""
    try:
        return entry.when is in_no_plan or known.ask(entry.when)
    except (SlotNotSet, *WRONG_SHAPE):
        return False


def _following(entry: Entry, present: Mapping[str, Any], known: Partial) -> Fate | None:
    """`follows` if a row without slots would write the same, `may follow` if that is undecided."""
    try:
        matters = known.ask(entry.when)
        is_same = matters and listed(known.ask(entry.write)) == listed(present)
    except SlotNotSet:
        return "may follow"
    except WRONG_SHAPE:
        return None
    return "follows" if is_same else None


def listed(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Values as on a command line, where a list of one is its member."""
    return {
        key: value[0] if isinstance(value, list) and len(value) == 1 else value
        for key, value in keys.items()
    }


def is_redundant(run: LintContext, document: Document, path: str, value: Any) -> bool:
    """Whether the key is filled by others, set to its default, or without effect on the run."""
    return _unsaid(run, document, path, value) != "left"


def _unsaid(run: LintContext, document: Document, path: str, value: Any) -> Fate:
    """The outcome of a key that no row turns into a slot."""
    if value == _AUTO and document.file is not None and document.file.filled is not None:
        return "filled"
    if document.kind in _STARTING and path.rpartition(".")[2] in MEETING:
        return "meeting"
    if _names_a_document(run, value) or _is_of_an_engine(run, document, path):
        return "file"
    default = default_of(run, document.kind, path)
    known = (
        (default.value,) if default.known else (None, {}, *_default_in_schema(run, document, path))
    )
    return "default" if any(is_same(each, value) for each in known) else "left"


def _default_in_schema(run: LintContext, document: Document, path: str) -> Iterator[Any]:
    """The default of a key in the schema of a document's reader, if that has one."""
    file, target = document.file, document.target
    if file is None or target is None:
        return
    name, schema_of = file.block or ("", file.schema)
    found = None if schema_of is None else schema_of(dialect_of(run, target))
    field: Mapping[str, Any] = {} if found is None else schema(found)
    for part in path.removeprefix(f"{name}.").split("."):
        field = field.get("properties", {}).get(part, {})
    if "default" in field:
        yield field["default"]


def _names_a_document(run: LintContext, value: Any) -> bool:
    """Whether it names another file, or a file's folder, that was read."""
    return isinstance(value, str) and PurePath(value).name in _NAMES.of(run.documents)


def _is_of_an_engine(run: LintContext, document: Document, path: str) -> bool:
    """Whether a word names an engine's file that ships with the program."""
    engines = (each for each in run.documents if each.kind == "deepspeed")
    return path == "deepspeed" and any(each.name == document.name for each in engines)


def _names_of(documents: Sequence[Document]) -> frozenset[str]:
    """The names of files, and of the folders that their readers require."""
    names = {each.name for each in documents}
    in_folders = {each.name for each in documents if each.file and "/" in each.file.name}
    folders = {PurePath(name).parent.name for name in in_folders}
    return frozenset(folders.union(PurePath(name).name for name in names))


_NAMES: Final = ByIdentity(f"{__name__}.names", 4, _names_of)
