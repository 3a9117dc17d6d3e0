"""Scripts that only their own target can parse: a trainer's command line, an older env file.

`tunec lint` reads a script's launcher and flags by their names. A target whose file is a script has
its own parser for it, which knows the flags of its one program.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.emit import schema
from tunec.compiler.frontend.nodes import Node, plain
from tunec.compiler.ir.ledger import Ledger, Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.formats import parse_text
from tunec.compiler.lints.kinds import LEAST_SHARE, kind_of
from tunec.compiler.read import WRONG_SHAPE, found_plain
from tunec.compiler.target import File, Target
from tunec.compiler.translate.leftovers import unwritten
from tunec.schemas.dotted_paths import nested
from tunec.schemas.frozen import replace
from tunec.schemas.objective_facts import OBJECTIVES
from tunec.schemas.source import Span

_FLAGS: Final = "flags"
_ANYBODYS: Final = ("launch", "launchers")
"""Tables of launch scripts, for any program."""
_BATCH: Final = "slurm"
"""The table of batch scripts, which hold a trainer's command too."""


def with_own_scripts(
    documents: Iterable[Document], targets: Mapping[str, Target], readers: Iterable[str]
) -> tuple[Document, ...]:
    """The documents, with scripts read by their own target if there is one."""
    every = tuple(documents)
    texts = {each.name: each.text for each in every if each.format == "shell"}
    first = [targets[name] for name in readers if name in targets]
    others = [table for name, table in targets.items() if name not in _ANYBODYS]
    found: dict[str, tuple[Document, ...]] = {}
    for name, text in texts.items():
        mine = tuple(each for each in every if each.name == name)
        tables = dict.fromkeys(table.name for table in (*first, *others))
        if any(_is_trainers(each) for each in mine):
            tables = {each: None for each in tables if each != _BATCH}
        own = (_own(targets[each], mine, text) for each in tables if each not in _ANYBODYS)
        found[name] = next(filter(None, own), ())
    kept = (each for each in every if not found.get(each.name))
    return (*kept, *(document for own in found.values() for document in own))


def _is_trainers(document: Document) -> bool:
    """Whether a document of a script holds what its trainer is told, beside how it is started."""
    return document.target is not None and document.kind not in ("launch", _BATCH)


def _own(table: Target, documents: tuple[Document, ...], text: str) -> tuple[Document, ...]:
    """The documents of a script as files of one target."""
    read = ((file, _parsed(table, file, text, documents)) for file in table.files)
    return tuple(
        _document(table, file, values, documents) for file, values in read if values is not None
    )


def _parsed(
    table: Target, file: File, text: str, documents: Sequence[Document]
) -> Mapping[str, Any] | None:
    """The script as a file of a target, if it is one, by the target's parser or as lint read it."""
    if file.format not in ("shell", "env") or file.parse is None:
        return None
    parse, command = file.parse, _command(documents)
    ways = (lambda: parse(text), *(() if command is None else (lambda: command,)))
    return next(filter(None, (_as_file(table, file, way) for way in ways)), None)


def _command(documents: Sequence[Document]) -> Mapping[str, Any] | None:
    """The only command of a script, with its flags; lint's shell expands more than parsers do."""
    starts = [each for each in documents if each.kind == "launch"]
    flags = [each for each in documents if each.kind != "launch" and each.target is None]
    if len(starts) != 1 or len(flags) != 1:
        return None
    words = [str(each) for each in starts[0].value("script") or ()]
    end = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
    said = {key: None if key in flags[0].unknown else at.value for key, at in flags[0].flat.items()}
    return {**plain(starts[0].root), "script": words[:end], _FLAGS: nested(said)}


def _as_file(table: Target, file: File, parse: Callable[[], Any]) -> Mapping[str, Any] | None:
    try:
        values = parse()
        is_one = isinstance(values, Mapping) and file.recognise(values)
        return values if is_one and _has_keys_of(table, file, values) else None
    except WRONG_SHAPE:
        return None


def _has_keys_of(table: Target, file: File, values: Mapping[str, Any]) -> bool:
    """Whether most flags are those of the file's program, as programs share some names."""
    every = found_plain(values).items()
    flags = {key: each.value for key, each in every if key.startswith(f"{_FLAGS}.")}
    given = [key for key, each in flags.items() if not isinstance(each, Mapping)]
    known = {key for entry in file.entries for key in entry.keys}
    known.update((each.old for each in file.leaves), _flags_of(table, file))
    return sum(key in known for key in given) >= LEAST_SHARE * len(given)


def _flags_of(table: Target, file: File) -> Iterator[str]:
    """The flags in the program's own schema of the newest release, by dotted path."""
    if file.block is not None:
        name, schema_of = file.block
        path = schema_of(table.dialect(table.release(table.latest)))
        yield from _leaves(name, schema(path)) if path is not None else ()


def _leaves(path: str, field: Mapping[str, Any]) -> Iterator[str]:
    inside = field.get("properties")
    if inside is None:
        yield path
        return
    for key, each in inside.items():
        yield from _leaves(f"{path}.{key}", each)


def _document(
    table: Target, file: File, values: Mapping[str, Any], documents: tuple[Document, ...]
) -> Document:
    """The parsed values with the places of the same words, unknown flags included."""
    parts, _ = parse_text(documents[0].name, documents[0].text)
    known = {key: node for each in parts for key, node in (each.root.fields or {}).items()}
    known |= {path: each.node for one in documents for path, each in one.found.items()}
    hidden = {key for one in documents for key in one.unknown}
    hidden |= {key for one in parts for key in one.unknown}
    given = found_plain(values).keys()
    unknown = frozenset(given & {path for key in hidden for path in (key, f"{_FLAGS}.{key}")})
    start = documents[0].start()
    root = _node(values, "", known, Node(start), unknown)
    return replace(
        documents[0], kind=kind_of(table, file), root=root, target=table, file=file, unknown=unknown
    )


def _node(
    value: Any, path: str, known: Mapping[str, Node], around: Node, unknown: frozenset[str]
) -> Node:
    """Parsed data as a tree: each value at the place of its key, or of its parent."""
    here = known.get(path) or known.get(path.removeprefix(f"{_FLAGS}.")) or around
    span = Span(*_place(here))
    if isinstance(value, Mapping):
        inside = {str(key): (f"{path}.{key}" if path else str(key)) for key in value}
        fields = {
            key: _node(value[key], at, known, here, unknown)
            for key, at in inside.items()
            if key in value and at not in unknown
        }
        return Node(span, key_span=here.key_span or span, fields=fields)
    if isinstance(value, list | tuple):
        items = tuple(Node(span, each) for each in value)
        return Node(span, key_span=here.key_span or span, items=items)
    return Node(span, value, here.key_span or span)


def _place(node: Node) -> tuple[str, int, int, int, int]:
    at = node.key_span or node.span
    return at.file, at.line, at.column, at.end_line, at.end_column


_WRITERS: Final = joined([f"`{each}`" for each in OBJECTIVES["reward"].written_by])
_WITHOUT_PLAN: Final[Mapping[str, tuple[str, str, str]]] = {
    "openrlhf-rm": (
        "openrlhf.cli.train_rm",
        "it freezes the head beside adapters, and evaluates in any case: there is no plan of it",
        f"write a spec with `objective: reward` for {_WRITERS}",
    ),
    "openrlhf-ppo": (
        "openrlhf.cli.train_ppo_ray",
        "Ray places actor, reference, critic and rewards on devices of their own: there is no plan",
        "write a spec with `objective: ppo` for `verl`, or grpo for `trl`, `ms-swift` or `verl`",
    ),
}
"""Kinds of flags that rules check and no slots express: program, reason, and alternative."""


def without_plan(documents: Iterable[Document]) -> Iterator[Diagnostic]:
    """A fault for each command of a program that has no plan."""
    for document in documents:
        if document.kind in _WITHOUT_PLAN:
            program, reason, instead = _WITHOUT_PLAN[document.kind]
            first = next(
                (each.key_label("its first flag") for each in document.found.values()), None
            )
            yield not_understood(
                f"the run of {program} has no counterpart",
                (first or Label("would be dropped", document.start()),),
                instead,
                (reason,),
            )


def unsettled(
    run: LintContext, ledger: Ledger, whole: Container[str], *, is_decided: bool = False
) -> Iterator[Diagnostic]:
    """A fault for each value that only a run would show, unless its slots are given.

    Settings without a call in a Python script are one fault together; none in the scripts of
    `whole`, which set everything that their run sets, or if tunec decides what no file sets.
    """
    for document in run.documents:
        absent = unwritten(document)
        for key in sorted(document.unknown - absent):
            if slots := _not_given(document, (key,), ledger):
                label = Label("in this script", document.start(), key)
                yield not_understood(
                    f"the value of {key} is known only when {document.name} runs",
                    (label,),
                    f"set it: {_settings(slots)}",
                )
        is_known = is_decided or document.name in whole
        slots = () if is_known else _not_given(document, sorted(absent), ledger)
        if slots := tuple(each for each in slots if ledger.winner(each) is None):
            yield not_understood(
                f"no call in {document.name} sets {joined(slots, 'and')}; another file of the run "
                "may set them",
                (Label("in this script", document.start()),),
                f"set them: {_settings(slots)}",
            )


def _not_given(document: Document, keys: Iterable[str], ledger: Ledger) -> tuple[str, ...]:
    """The slots of keys that the command line does not set."""
    slots = dict.fromkeys(slot for key in keys for slot in slots_of(document, key))
    return tuple(slot for slot in slots if not is_given(ledger, slot))


def _settings(slots: Iterable[str]) -> str:
    return " ".join(f"--set {slot}=VALUE" for slot in slots)


def not_understood(
    message: str, labels: tuple[Label, ...], help: str, notes: tuple[str, ...] = ()
) -> Diagnostic:
    """The fault for a setting that a translation would drop."""
    return Diagnostic("E0908", "error", message, labels, notes, help=help)


def slots_of(document: Document, key: str) -> Iterator[str]:
    """The slots that rows of a document's file express by a key, given by its name or its path."""
    names = {key, *(name for name, path in document.paths.items() if path == key)}
    for entry in document.file.entries if document.file else ():
        if not names.isdisjoint(entry.keys):
            yield from entry.slots


def is_given(ledger: Ledger, slot: str) -> bool:
    """Whether the command line sets a slot."""
    winner = ledger.winner(slot)
    return winner is not None and winner.rank == Rank.PIN
