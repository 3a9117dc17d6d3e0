"""Turn files into documents by their content, follow references, and note what cannot be read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.allow import Allowance
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.comments import allowances
from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.frontend.nodes import Node, plain
from tunec.compiler.frontend.python_settings import BY_ITSELF, ScriptArguments
from tunec.compiler.frontend.shell_references import SCRIPTS
from tunec.compiler.frontend.spelling import spelled
from tunec.compiler.lints.context import OUTSIDE, Missing, Unread
from tunec.compiler.lints.document import TRAINERS, TRL, Document, FileReference, Place
from tunec.compiler.lints.formats import OPTIONS_FILE, Parsed, hostfile, said_elsewhere
from tunec.compiler.lints.formats import with_inline_json as with_json
from tunec.compiler.lints.kinds import DATA_SETS, EXPLAINED, data_sets, kind_of, known_keys
from tunec.compiler.lints.neighbours import (
    LONGEST,
    as_shipped,
    checkpoints,
    is_among,
    is_file_name,
    is_python,
    is_shipped,
    references,
    script_of,
    script_references,
    starts_of,
    written_by,
)
from tunec.compiler.lints.parses import Parses, as_read, as_warnings, listed
from tunec.compiler.lints.recognition import of_kind
from tunec.compiler.lints.repository import Reach, called_as, near, reach_of, unreadable
from tunec.compiler.lints.views import views
from tunec.compiler.read import WRONG_SHAPE
from tunec.compiler.target import Json, Target
from tunec.schemas.frozen import replace

_MOST_FOLLOWED: Final = 64  # files that are read because others refer to them
_COMPANIONS: Final = ("data_backend_config", "lycoris_config")  # files that SimpleTuner reads too
_LYCORIS: Final = frozenset({"algo", "multiplier", "linear_dim", "linear_alpha"})
"""Keys of a LyCORIS file (SimpleTuner's lycoris_config), for which no target has a table."""


class Reading(Struct, frozen=True):
    """Everything that was read for a run."""

    documents: tuple[Document, ...] = ()
    missing: tuple[Missing, ...] = ()
    unread: tuple[Unread, ...] = ()
    faults: tuple[Diagnostic, ...] = ()
    """Faults of a file's text, such as its syntax."""
    sources: Mapping[str, str] = field(default_factory=dict)
    allowances: tuple[Allowance, ...] = ()
    named: tuple[FileReference, ...] = ()
    beside: tuple[Document, ...] = ()
    """Documents of other commands, which are separate runs."""


class _Reader(Struct):
    """Collects what is read; each file is read once."""

    targets: Mapping[str, Target]
    readers: Sequence[str]
    reach: Reach = Reach()
    memory: Parses = field(default_factory=Parses)
    documents: list[Document] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    faults: list[Diagnostic] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # of files with a fault of their syntax
    allowed: list[Allowance] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)
    held: set[str] = field(default_factory=set)  # texts of files that are within another one
    followed: int = 0
    methods: dict[Path, str] = field(default_factory=dict)  # what TRL's command trains by a file
    configuring: set[str] = field(default_factory=set)  # scripts with the trainer's arguments
    named: list[FileReference] = field(default_factory=list)
    starts: dict[str, ScriptArguments] = field(default_factory=dict)  # what lines give to scripts
    given: dict[str, ScriptArguments] = field(default_factory=dict)  # the same, by the file's name

    def file(self, path: Path) -> None:
        """Read a named file and the files that it refers to."""
        try:
            content = read_bytes(path)
        except Unreadable as fault:
            self.faults.append(unreadable(path, fault))
            return
        self._content(path, content)
        name = str(path)
        is_faulty = any(each.file == name for each in self.faults)
        if is_python(name) and name not in self.sources and not is_faulty:
            self.unread.append(Unread(name, content.decode("utf-8", "replace"), ()))

    def _content(self, path: Path, content: bytes) -> None:
        full = path.resolve()
        if full not in self.seen:
            self.seen.add(full)
            self.text(str(path), content, path)

    def text(self, name: str, content: bytes | str, path: Path | None = None) -> None:
        """Take in a file's content; if the path is known, follow the references."""
        given = self.given.get(name, BY_ITSELF)
        parsed, faults = self.memory.parsed(name, content, given, self.targets, self.readers)
        self.starts |= starts_of(parsed)
        self.faults += faults
        if faults:
            self.texts[name] = (
                str(content, "utf-8", "replace") if isinstance(content, bytes) else content
            )
        for each in parsed if parsed and parsed[0].text not in self.held else ():
            self.sources[name] = each.text
            self._document(name, each, path)
        if parsed and parsed[0].format != "json":
            root = parsed[0].root if parsed[0].format == "yaml" else None
            self.allowed += allowances(parsed[0].text, name, root)

    def _held(self, name: str, document: Json, holds: Callable[[Json], Mapping[str, str]]) -> None:
        """Read the files that are embedded in another file, except those that were read already."""
        try:
            texts = holds(document)
        except WRONG_SHAPE:
            return
        for inner, text in texts.items():
            if text not in self.sources.values():
                self.text(f"{name}/{inner}", text)
                self.held.add(text)

    def _hosts(self, launcher: Document, path: Path) -> None:
        """Read the hostfile that a launcher names, or note that a relative one is missing."""
        named = launcher.get("hostfile") if launcher.kind == "launch" else None
        if named is None or not isinstance(named.value, str) or len(named.value) > LONGEST:
            return
        for each, content in self.reach.contents(Path(named.value), path, launcher.folder):
            if each.resolve() not in self.seen:
                self.seen.add(each.resolve())
                name = str(called_as(each, path))
                self._document(name, listed(hostfile(name, content.decode("utf-8", "replace"))))
            self._names(launcher, each, path)
            return
        file = Path(named.value)  # absolute ones lie on the cluster
        if not file.is_absolute() and written_by((launcher,), file.name)[1] is None:
            self.missing.append(Missing(named, named.value, self._why(named.value, path)))

    def _started(self, launcher: Document, path: Path) -> None:
        """Read the Python file that a launcher starts, if it exists."""
        script = launcher.get("script") if launcher.kind == "launch" else None
        if script is None or not (started := script_of(script.first_word)):
            return
        for each, content in self.reach.contents(Path(started), path, launcher.folder):
            name = self._names(launcher, each, path)
            self.given[name] = self.starts.get(script.first_word, BY_ITSELF)
            self._content(Path(name), content)
            if any(d.name == name and d.kind in TRAINERS for d in self.documents):
                self.configuring.add(script.first_word)
            return

    def _companions(self, document: Document, path: Path) -> None:
        for named in data_sets(document):
            if next(self.reach.contents(named, path, document.folder), None):
                self._follow(Place(document, "dataset", Node(document.start(), str(named))), path)
                break
        for key in _COMPANIONS:
            at = document.get(key)
            if document.format == "shell" or at is None or not isinstance(at.value, str):
                continue
            if is_file_name(at.value) and next(self.reach.contents(Path(at.value), path), None):
                self._follow(at, path)

    def _document(self, name: str, parsed: Parsed, path: Path | None = None) -> None:
        if parsed.part == "hostfile":
            self.sources[name] = parsed.text
            self.documents.append(_without_table(name, "hostfile", parsed))
            return
        if parsed.program in self.configuring:
            return  # its own flags, from which it makes what it calls the trainer with
        if parsed.reader in SCRIPTS:
            self._script(name, parsed, path)
            return
        if (known := self.memory.known(name, parsed, self.targets, self.readers)) is None:
            self._of_nobody(name, parsed, path)
            return
        method = "" if path is None or known[2] not in TRL else self.methods.get(path.resolve(), "")
        target, file, kind = (of_kind(method, self.targets) or known) if method else known
        if file.holds is not None:
            self._held(name, plain(parsed.root), file.holds)
            return
        root = self._unfolded(name, parsed, path) if kind in TRAINERS else parsed.root
        root, paths = spelled(kind, root)
        unknown = parsed.unknown | said_elsewhere(parsed, known_keys(target, file))
        document = Document(
            name,
            kind,
            parsed.format,
            parsed.text,
            root,
            target,
            file,
            unknown=unknown,
            hidden=parsed.hidden,
            paths=paths,
            runs=parsed.runs,
            folder=parsed.folder,
            loose=parsed.loose,
        )
        self.documents += [document, *map(self._with_table, views(document))]
        if kind == "simpletuner":
            from tunec.compiler.lints.facts.diffusion import flags_view

            self._in_words_of_simpletuner(flags_view(document))
        if path is not None:
            self._beside(document, parsed, path)

    def _beside(self, document: Document, parsed: Parsed, path: Path) -> None:
        """Read the files that a document names, or that start it."""
        for each in (*references(document), *script_references(document, parsed)):
            self._follow(each, path)
        self._started(document, path)
        self._hosts(document, path)
        self._companions(document, path)
        if document.kind in TRAINERS:
            admits = partial(self.reach.admits, path=path)
            for folder, node in checkpoints(document, partial(near, path=path), admits):
                called = str(called_as(folder, path))
                self.documents.append(Document(called, "checkpoint", "folder", "", node))

    def _of_nobody(self, name: str, parsed: Parsed, path: Path | None) -> None:
        """Keep what no table reads: a LyCORIS file, a list of data sets, a file, or flags."""
        keys = tuple(parsed.root.fields or ())
        if {"algo", "linear_alpha"} <= set(keys) or len(_LYCORIS.intersection(keys)) > 2:
            self.documents.append(_without_table(name, "lycoris", parsed))
        elif Path(name).name == DATA_SETS:
            self.documents.append(_without_table(name, EXPLAINED, parsed))
        elif not parsed.part:
            self.unread.append(Unread(name, parsed.text, keys))
        elif path is not None:
            self._follow_named(name, parsed, path)

    def _with_table(self, view: Document) -> Document:
        """Give a view of model or script arguments the table that reads the Trainer's own file."""
        by_script = view.origin is not None and view.origin.kind in SCRIPTS
        is_read = view.kind == "model" or (by_script and view.kind in TRAINERS)
        if not is_read or (reader := self.targets.get("huggingface")) is None:
            return view
        file = next((each for each in reader.files if kind_of(reader, each) == view.kind), None)
        return view if file is None else replace(view, target=reader, file=file)

    def _script(self, name: str, parsed: Parsed, path: Path | None) -> None:
        """Take in the flags of a known maker's script, and follow the files that they name."""
        document = _without_table(name, str(parsed.reader), parsed)
        self.documents += [document, *map(self._with_table, views(document))]
        if parsed.reader == "diffusers":
            from tunec.compiler.lints.facts.diffusion import example_view

            self._in_words_of_simpletuner(example_view(document, parsed.program))
        if path is not None:
            self._follow_named(name, parsed, path)

    def _in_words_of_simpletuner(self, told: Document | None) -> None:
        """Add a view under the keys of SimpleTuner's config.json, with the table that reads it."""
        reader = self.targets.get("simpletuner")
        if told is not None and reader is not None:
            file = next(each for each in reader.files if kind_of(reader, each) == "simpletuner")
            self.documents.append(replace(told, target=reader, file=file))

    def _unfolded(self, name: str, parsed: Parsed, path: Path | None) -> Node:
        """A trainer's keys, with mappings that are given as text or by file name put in."""

        def read(node: Node) -> str | None:
            if path is None or not is_file_name(node.value):
                return None
            found = next(self.reach.contents(Path(node.value), path), None)
            if found is None:
                document = Document(name, "script", parsed.format, parsed.text, parsed.root)
                place = Place(document, OPTIONS_FILE, node)
                self.missing.append(Missing(place, node.value, self._why(node.value, path)))
                return None
            full = found[0].resolve()
            self.seen.add(full)
            self.unread = [each for each in self.unread if Path(each.name).resolve() != full]
            return found[1].decode("utf-8", "replace")

        return with_json(parsed.root, read)

    def _follow_named(self, name: str, parsed: Parsed, path: Path) -> None:
        """Follow the files that the flags of an unknown script name."""
        document = _without_table(name, "script", parsed)
        for each in (*references(document), *script_references(document, parsed)):
            self._follow(each, path)

    def _names(self, document: Document, found: Path, path: Path) -> str:
        """Record that a document names a file, and return the file's name."""
        name = str(called_as(found, path))
        self.named.append(FileReference(document.name, document.alternatives, name))
        return name

    def _follow(self, place: Any, path: Path) -> None:
        for each, content in self.reach.contents(Path(place.value), path, place.document.folder):
            if self.followed < _MOST_FOLLOWED:
                self.followed += 1
                if place.document.kind in TRL and place.document.format == "shell":
                    self.methods.setdefault(each.resolve(), place.document.kind)
                self._content(Path(self._names(place.document, each, path)), content)
            return
        script, text = written_by((place.document, *self.documents), place.value)
        if text is None:
            self.missing.append(Missing(place, str(place.value), self._why(place.value, path)))
        elif text:  # a here-document
            name = f"{script}/{Path(place.value).name}"
            self.named.append(FileReference(place.document.name, place.document.alternatives, name))
            self.text(name, text)

    def _why(self, named: str, path: Path) -> str:
        """Why a file that another file names was not read."""
        return OUTSIDE if self.reach.leaves_out(Path(named), path) else "there is no such file"


def _without_table(name: str, kind: str, of: Parsed) -> Document:
    """A document of flags, or of a file, that no table reads."""
    root, paths = spelled(kind, of.root)
    unknown = of.unknown | {new for new, old in paths.items() if old in of.unknown}
    told = Document(name, kind, of.format, of.text, root, unknown=unknown)
    return replace(told, paths=paths, runs=of.runs, folder=of.folder, loose=of.loose)


def read_files(
    paths: Sequence[Path],
    targets: Mapping[str, Target],
    readers: Sequence[str] = (),
    reach: Reach | None = None,
    memory: Parses | None = None,
) -> Reading:
    """Read files and, within reach, the files that they refer to; raises nothing for any content.

    With the `memory` of an earlier call for the same targets and readers, only new content is
    parsed.
    """
    reader = _Reader(targets, readers, reach or reach_of(paths), memory or Parses())
    for path in sorted(paths, key=lambda each: is_python(each.name)):
        reader.file(path)  # a script is read as what starts it gives
    return _finished(reader)


def read_texts(
    texts: Mapping[str, str], targets: Mapping[str, Target], readers: Sequence[str] = ()
) -> Reading:
    """Read texts, by file name, as documents; references are resolved by name among the texts."""
    reader = _Reader(targets, readers)
    for name, text in texts.items():
        reader.text(name, text)
    for document in list(reader.documents):
        for place in references(document):
            exact = [place.value] if place.value in reader.sources else [*reader.sources]
            found = next((each for each in exact if is_among(place.value, (each,))), None)
            if found is not None:
                reader.named.append(FileReference(document.name, document.alternatives, found))
            elif not document.is_view:
                reader.missing.append(Missing(place, str(place.value), "there is no such file"))
    return _finished(reader)


def _finished(reader: _Reader) -> Reading:
    engines, missing = as_shipped(reader.documents, reader.missing)
    documents = tuple(_settled([*reader.documents, *engines], reader.targets, reader.readers))
    faults = as_warnings(reader.faults, documents, reader.texts, reader.targets)
    return Reading(
        documents,
        missing,
        tuple(reader.unread),
        tuple(as_read(faults, documents, reader.readers, reader.texts)),
        reader.sources,
        tuple(reader.allowed),
        tuple(reader.named),
    )


def _settled(
    documents: list[Document], targets: Mapping[str, Target], readers: Sequence[str]
) -> Iterator[Document]:
    """Give each ds_config.json the table of its reader, which depends on the other documents."""
    kinds = {each.kind for each in documents}
    reader = "huggingface" if kinds & {*TRAINERS, "axolotl", "ms-swift"} else ""
    reader = reader or ("simpletuner" if "simpletuner" in kinds else "deepspeed")
    target = targets["deepspeed" if "deepspeed" in readers else reader]
    for each in documents:
        if each.kind != "deepspeed" or (each.is_view and not is_shipped(each)):
            yield each
            continue
        file = next((e for e in target.files if kind_of(target, e) == "deepspeed"), None)
        yield replace(each, target=target, file=file) if file else each
