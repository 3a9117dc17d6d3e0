"""What rows make nothing of: keys that no slot stands for, or whose value has no effect."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal

from msgspec import Struct

from tunec.compiler.emit import schema
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.ir.values import is_same
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.effective import default_of
from tunec.compiler.read import WRONG_SHAPE, settle
from tunec.compiler.target import Dialect, Entry, in_no_plan
from tunec.compiler.translate.partial import Partial, Unsaid
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
"""Flags of launchers that say how many processes there are, where they meet, and which file tells
more: torch 2.13.0 distributed/run.py; deepspeed 0.14.5 to 0.19.8 launcher/runner.py; accelerate
0.30.1 to 1.15.0 commands/launch.py. The first are read as counts; another launcher has its own way
for the others."""


Fate = Literal[
    "said", "idle", "follows", "may follow", "filled", "meeting", "file", "default", "left"
]
"""What a key of a file is: `said` by slots; of no effect (`idle`); what its program makes of other
keys anyway (`follows`), or, by what is known, could (`may follow`); `auto`, which another file
fills; where processes meet; the name of a file that was read; as if absent; or none of these."""


class Read(Struct, frozen=True):
    """A key of a file that was read, with its value, and what rows make of it."""

    key: str
    """As rows have it."""
    place: Place
    fate: Fate
    slots: tuple[str, ...] = ()
    """The slots that it says, alone or with others."""

    @property
    def is_left(self) -> bool:
        """Whether no slot stands for it, nor for what it follows from."""
        return self.fate == "left"


def reads(
    run: LintContext, document: Document, known: Partial, given: Collection[str] = ()
) -> Iterator[Read]:
    """Every key of a document that holds no others, and what rows make of it.

    `known` is what all files say: a key that its program derives from it is no news. `given` are
    slots of the command line, by which keys that say them in another way are settled.
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
    """What a row writes by what is known; nothing if that is too little."""
    try:
        return known.ask(entry.write) if known.ask(entry.when) else {}
    except (Unsaid, *WRONG_SHAPE):
        return {}


def hidden(document: Document) -> Iterator[str]:
    """Keys without a slot whose values are known only by running the script."""
    known = {
        key for entry in (document.file.entries if document.file else ()) for key in entry.keys
    }
    for key in sorted(document.unknown - unwritten(document)):
        if known.isdisjoint(_around(key)) and key.rpartition(".")[2] not in MEETING:
            yield key


def unwritten(document: Document) -> frozenset[str]:
    """Settings that no call of a Python script gives, though something else of its run may."""
    if document.format != "python":
        return frozenset()
    return frozenset(
        key for key in document.unknown if key.partition(".")[0] not in document.hidden
    )


def _around(path: str) -> Iterator[str]:
    """A path and the paths of what holds it."""
    while path:
        yield path
        path = path.rpartition(".")[0]


def _opened(entry: Entry) -> Iterator[str]:
    """Keys that a row names beside some that they hold: the row says nothing of the others."""
    for key in entry.keys:
        yield from (each for each in _around(key.rpartition(".")[0]) if each in entry.keys)


def _understood(
    document: Document, dialect: Dialect, known: Partial, given: Collection[str]
) -> dict[str, tuple[Fate, tuple[str, ...]]]:
    """The keys of the rows that give a slot, and those that matter only in company of theirs."""
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
    """The keys of rows that matter and give none of their slots, which no other row gives either.

    Another row may have understood such a key in part: `eval_strategy: epoch` tells that there is
    an evaluation, and no number of steps.
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
    """Whether a row says something of a run like this."""
    try:
        return entry.when is in_no_plan or known.ask(entry.when)
    except (Unsaid, *WRONG_SHAPE):
        return False


def _following(entry: Entry, present: Mapping[str, Any], known: Partial) -> Fate | None:
    """Whether a row without slots would write the same; where that is open, it may."""
    try:
        matters = known.ask(entry.when)
        is_same = matters and listed(known.ask(entry.write)) == listed(present)
    except Unsaid:
        return "may follow"
    except WRONG_SHAPE:
        return None
    return "follows" if is_same else None


def listed(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Values as a command line has them, where a list of one is that one."""
    return {
        key: value[0] if isinstance(value, list) and len(value) == 1 else value
        for key, value in keys.items()
    }


def says_nothing(run: LintContext, document: Document, path: str, value: Any) -> bool:
    """Whether the key is filled by others, set to its default, or of no effect on the run."""
    return _unsaid(run, document, path, value) != "left"


def _unsaid(run: LintContext, document: Document, path: str, value: Any) -> Fate:
    """What a key is of which no row makes a slot."""
    if value == _AUTO and document.file is not None and document.file.filled is not None:
        return "filled"
    if document.kind in _STARTING and path.rpartition(".")[2] in MEETING:
        return "meeting"
    if _names_a_document(run, value) or _is_of_an_engine(run, document, path):
        return "file"
    default = default_of(run, document.kind, path)
    as_absent = value in (None, {}) if not default.known else is_same(default.value, value)
    return "default" if as_absent else "left"


def _names_a_document(run: LintContext, value: Any) -> bool:
    """Whether it says which other file to read, or the folder of one, and that has been read."""
    return isinstance(value, str) and PurePath(value).name in _NAMES.of(run.documents)


def _is_of_an_engine(run: LintContext, document: Document, path: str) -> bool:
    """Whether a word names an engine's file that the program has itself."""
    engines = (each for each in run.documents if each.kind == "deepspeed")
    return path == "deepspeed" and any(each.name == document.name for each in engines)


def _names_of(documents: Sequence[Document]) -> frozenset[str]:
    """The files' names, and of those that their reader wants in a folder of their own its name."""
    names = {each.name for each in documents}
    in_folders = {each.name for each in documents if each.file and "/" in each.file.name}
    folders = {PurePath(name).parent.name for name in in_folders}
    return frozenset(folders.union(PurePath(name).name for name in names))


_NAMES: Final = ByIdentity(f"{__name__}.names", 4, _names_of)
