"""The run: documents that are read together, what they set, and the facts known beside them.

Every rule receives a run. It answers, in this order of usefulness:

- `run.slot("zero.stage")`: a decision in tunec's own vocabulary, whichever file sets it;
- `run.effective("deepspeed", "zero_optimization.stage")`: the value that a consumer will use;
- `run.said("trainer", "bf16")`: what a file literally contains;
- `run.world`, `run.environment.weakest`, `run.model`, `run.release("deepspeed")`: the surroundings.

Each may be unknown. A rule that needs an unknown fact finds nothing, or a `Finding` that is not
`certain`; it never guesses.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from msgspec import Struct, field
from packaging.version import Version

from tunec.compiler.ir.ledger import Definition, Ledger, Rank
from tunec.compiler.lints.document import FAMILIES, TRAINERS, Document, Place, families_of
from tunec.compiler.lints.effective import Effective, effective
from tunec.compiler.lints.environment import Environment, Release, releases, split_requirement
from tunec.compiler.lints.own_source import OwnSource
from tunec.compiler.read import read
from tunec.compiler.target import Target
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel
    from tunec.compiler.lints.schemas import Fault

_WORLD: Final = "parallel.world"
_PRECISION: Final = "precision.compute"

_ON_EVERY_DEVICE: Final = ("deepspeed", "accelerate")
"""Launchers that start one process for every visible device unless a number is given: deepspeed
0.14.5 to 0.19.8 launcher/runner.py; accelerate 0.30.1 to 1.15.0 commands/launch.py."""
_COUNTED: Final = (_WORLD, "devices.nodes", "devices.per_node")

DeepspeedReader = Literal["trainer", "plain", "unknown"]

_CLASSES: Final = {
    "transformers": "training_arguments",
    "trl": "sft_config",
    "peft": "lora_config",
}
"""For packages without a table: a class whose known releases include the package's newest one."""


OUTSIDE: Final = "it lies outside the project"


class Missing(Struct, frozen=True):
    """A file that another file names, and that was not read."""

    place: Place
    """The key that names the file."""
    path: str
    """The path under which the file was looked up."""
    why: str


class Unread(Struct, frozen=True):
    """A file of no known kind."""

    name: str
    text: str
    keys: tuple[str, ...]
    """The file's top-level keys."""


class LintContext(Struct, frozen=True, eq=False, dict=True):
    """Documents of one training run with their surroundings."""

    OF_FILES: ClassVar[tuple[str, ...]] = (
        *("_of", "_said", "_faults", "_places", "written", "inline_json"),
        *("kinds", "keys", "releases", "deepspeed_reader", "started"),
    )
    """Cached attributes that depend on files and versions alone."""

    documents: tuple[Document, ...]
    """In the order in which the files were named; a view follows its origin."""
    environment: Environment
    targets: Mapping[str, Target]
    """Every target's table, by the target's name."""
    missing: tuple[Missing, ...] = ()
    unread: tuple[Unread, ...] = ()
    resolve_model: "Callable[[str], ResolvedModel | None]" = field(default=lambda _: None)
    """Looks up a repository name in the catalogue; None if the catalogue lacks the model."""
    own: OwnSource = OwnSource()
    """What the repository's Python files declare; empty if the files are not on disk."""
    beside: tuple[Document, ...] = ()
    """Documents of the scripts' other commands, each of which is a separate run."""

    __repr__ = object.__repr__

    def moved(self, environment: Environment) -> "LintContext":
        """The run on other hardware, with the same files and versions; files are not read again."""
        moved = replace(self, environment=environment)
        known = self.__dict__
        moved.__dict__.update({name: known[name] for name in self.OF_FILES if name in known})
        return moved

    def of(self, *kinds: str) -> tuple[Document, ...]:
        """The documents of some kinds or families (`trainer`: all with TrainingArguments)."""
        if kinds not in self._of:
            wanted = {each for kind in kinds for each in FAMILIES.get(kind, (kind,))}
            self._of[kinds] = tuple(each for each in self.documents if each.kind in wanted)
        return self._of[kinds]

    @cached_property
    def _of(self) -> dict[tuple[str, ...], tuple[Document, ...]]:
        return {}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of all documents."""
        return frozenset(each.kind for each in self.documents)

    @cached_property
    def started(self) -> Mapping[str, Mapping[str, Place]]:
        """The paths of the scripts that each file's launch lines start, by the file's name."""
        found: dict[str, dict[str, Place]] = {}
        for place in self.each("launch", "script"):
            name = place.document.name
            found.setdefault(name, {}).setdefault(self.own.nearest(place.first_word, name), place)
        return found

    @cached_property
    def keys(self) -> frozenset[str]:
        """Every written key, prefixed with its kind and families: `sft:bf16`, `trainer:bf16`.

        `sft:*` stands for any key of such a document, and `slot:parallel.world` for any key whose
        row carries that slot.
        """
        return frozenset(key for document in self.documents for key in _keys(document))

    def said(self, kind: str, *keys: str) -> Place | None:
        """The first place where a document of the kind sets one of the keys, by order of keys."""
        found = (each.get(key) for key in keys for each in self.of(kind))
        return next((place for place in found if place is not None), None)

    def each(self, kind: str, key: str) -> Iterator[Place]:
        """The key's place in each document of the kind that sets it."""
        return (place for each in self.of(kind) if (place := each.get(key)) is not None)

    def hides(self, kind: str, *keys: str) -> bool:
        """Whether a document of the kind gives one of the keys an unknown value."""
        return any(each.hides(*keys) for each in self.of(kind))

    def effective(self, kind: str, key: str) -> Effective:
        """The value of a consumer's key: written, filled in by the trainer, or the default."""
        return effective(self, kind, key)

    def faults(self, document: Document) -> "tuple[Fault, ...]":
        """Faults of a document against its reader's schema (`tunec.compiler.lints.schemas`)."""
        if document not in self._faults:
            from tunec.compiler.lints.schemas import faults_of

            self._faults[document] = tuple(faults_of(self, document))
        return self._faults[document]

    @cached_property
    def _faults(self) -> "dict[Document, tuple[Fault, ...]]":
        return {}

    # ── slots ────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def written(self) -> Ledger:
        """Every value that the documents give to slots, and the defaults of their readers."""
        return Ledger().add(tuple(self._definitions()))

    def slot(self, path: str) -> Definition | None:
        """The definition of a slot that is in force; None if no document sets the slot.

        Its `rank` distinguishes a written value (OBSERVED) from a default (CONSUMER), from
        --world-size (PIN) and from the hardware (CATALOGUE); `value` has the slot's type.
        """
        if path == _WORLD and self.environment.world is not None:
            return next(self._surroundings())  # the last word: no file is read for it
        every = self.definitions(path)
        if path == _PRECISION:
            every = tuple(sorted(every, key=self._is_launcher_s))
        return max(every, key=lambda each: each.rank, default=None)

    def _is_launcher_s(self, definition: Definition) -> bool:
        """Whether a launcher's file sets the value, which the trainer overrides with its own.

        transformers 4.40.2 to 5.23.0 training_args.py `__post_init__`: ACCELERATE_MIXED_PRECISION.
        """
        place = self.place(definition)
        return place is not None and place.document.kind in ("accelerate", "launch")

    def definitions(self, path: str) -> tuple[Definition, ...]:
        """Every definition of a slot, from documents and from the surroundings."""
        return (*self.written_of(path), *(self._surroundings() if path == _WORLD else ()))

    def written_of(self, path: str) -> tuple[Definition, ...]:
        """The definitions of a slot that come from documents."""
        return self.written.of(path)

    def value(self, path: str, otherwise: Any = None) -> Any:
        """The value of a slot, or `otherwise` if no document sets the slot."""
        winner = self.slot(path)
        return otherwise if winner is None else winner.value

    def observed(self, path: str) -> Definition | None:
        """The definition of a slot if it is written in a document, else None."""
        winner = self.slot(path)
        return winner if winner is not None and winner.rank == Rank.OBSERVED else None

    def place(self, definition: Definition | None) -> Place | None:
        """The place where a definition is written; None if it is written in no file."""
        if definition is None or definition.span is None:
            return None
        return self._places.get(definition.span)

    @cached_property
    def _places(self) -> Mapping[Span, Place]:
        found = ((each.span, each) for one in self.documents for each in one.found.values())
        return dict(reversed(list(found)))

    @cached_property
    def inline_json(self) -> frozenset[Span]:
        """Spans of mappings written as one text, within which no edit can be made."""
        every = (place.node for each in self.documents for place in each.found.values())
        return frozenset(node.span for node in every if node.is_inline_json)

    # ── surroundings ─────────────────────────────────────────────────────────────────────────────

    @property
    def world(self) -> Definition | None:
        """The number of processes: --world-size, else the launcher's, else all devices."""
        return self.slot(_WORLD)

    @property
    def data_parallel(self) -> int | None:
        """Processes that work on different samples: world / (tensor x sequence x pipeline)."""
        world = self.value(_WORLD)
        split = self.value("parallel.tensor", 1) * self._sequence_width
        return world // split if world is not None and split and world % split == 0 else None

    @property
    def _sequence_width(self) -> int:
        """The number of processes that share a sequence, even if only ds_config.json sets it.

        deepspeed 0.17.6 to 0.19.8 runtime/config.py `DeepSpeedConfig.__init__`: world_size is the
        group's size divided by "sequence_parallel_size".
        """
        said = self.said("deepspeed", "sequence_parallel_size")
        width = (
            said.value if said is not None and self.runs("deepspeed>=0.17.6") is not False else 1
        )
        asked: int = self.value("parallel.sequence", 1)
        return width if type(width) is int and width > 1 else asked

    @cached_property
    def model(self) -> "ResolvedModel | None":
        """The model from --model, else the one that a file names, if the catalogue has it."""
        if self.environment.model is not None:
            return self.environment.model
        return self.resolve_model(self.model_name) if self.model_name else None

    @property
    def model_name(self) -> str | None:
        """The model's name, from --model or a file, including an unknown script's flags."""
        name = self.environment.model_name or self.value("model.path")
        if name is None:
            said = self.said("trainer", "model_name_or_path")
            name = self._model_by_word if said is None else said.value
        return name if isinstance(name, str) and name else None

    @property
    def _model_by_word(self) -> str | None:
        """The second argument of a GLM-4 script, which takes data, model and configuration."""
        from tunec.compiler.frontend.shell_references import GLM4

        scripts = (each.value("script") for each in self.of("launch"))
        words = [each for each in scripts if isinstance(each, list) and len(each) > 3]
        return next((str(each[2]) for each in words if GLM4.search(str(each[0]))), None)

    @cached_property
    def deepspeed_reader(self) -> DeepspeedReader:
        """The reader of ds_config.json: a trainer that fills in `auto`, or DeepSpeed itself."""
        named = self.environment.readers
        if "deepspeed" in named:
            return "plain"
        is_filled = self.of(*TRAINERS, "accelerate", "axolotl", "simpletuner")
        return "trainer" if is_filled or named else "unknown"

    def release(self, package: str) -> Release:
        """The release of a package that is assumed to run.

        Raises LookupError for a package that no table covers.
        """
        if package not in self.releases and package in _CLASSES:
            from tunec.compiler.lints.schemas import newest

            return Release(package, Version(newest(_CLASSES[package])), is_named=False)
        return self.releases[package]

    def runs(self, requirement: str) -> bool | None:
        """Whether the run's release satisfies `transformers>=5`, say; None if unknown."""
        package, specifiers = split_requirement(requirement)
        release = self.releases.get(package)
        return None if release is None else release.is_in(specifiers)

    @cached_property
    def releases(self) -> Mapping[str, Release]:
        """The release of each package that a table covers or that was given."""
        running = {each.target.name for each in self.documents if each.target is not None}
        found = dict(releases(self._by_presence(running), self.environment, running))
        taken = found.get("transformers")
        if taken is not None and not taken.is_named:
            from tunec.compiler.lints.facts.key_releases import no_older_than_its_keys

            found["transformers"] = no_older_than_its_keys(taken, self.documents)
        return found

    def _by_presence(self, held: Container[str]) -> Mapping[str, Target]:
        """The tables in the order in which they pin packages: named ones first, trainers last.

        A program that nobody runs pins nothing: LLaMA-Factory's transformers or Axolotl's
        accelerate.
        """

        def order(name: str) -> tuple[bool, ...]:
            is_named = self.environment.names(self.targets[name].package)
            trains = self.targets[name].counting is not None
            return not is_named, name not in held, name != "huggingface", trains

        return {name: self.targets[name] for name in sorted(self.targets, key=order)}

    # ── definitions ──────────────────────────────────────────────────────────────────────────────

    def _definitions(self) -> Iterator[Definition]:
        # flags win over the file that a launcher or a program is given beside them
        for document in sorted(self.documents, key=lambda each: each.format != "shell"):
            if document not in self._said:
                self._said[document] = tuple(self._said_by(document))
            yield from self._said[document]
        yield from self.together()

    def together(self) -> Iterator[Definition]:
        """Definitions that follow only from several documents of one target together."""
        tables = {each.target.name: each.target for each in self.documents if each.target}
        for name, target in tables.items():
            mine = [each for each in self.documents if each.target and each.target.name == name]
            if len(mine) > 1:
                yield from target.together({e.file.name: e.flat for e in mine if e.file})

    @cached_property
    def _said(self) -> dict[Document, tuple[Definition, ...]]:
        return {}

    def _said_by(self, document: Document) -> Iterator[Definition]:
        target, file = document.target, document.file
        if target is None or file is None:
            return
        version = self.release(target.package).version
        software = {name: str(each.version) for name, each in self.releases.items()}
        for each in read(target, {file.name: document.flat}, version, software):
            if each.rank != Rank.CONSUMER or not _is_given(document, each.slot):
                yield by(document, each)

    def _surroundings(self) -> Iterator[Definition]:
        asked, cluster = self.environment.world, self.environment.cluster
        if asked is not None:
            reason = f"--world-size is {asked}"
            yield Definition(_WORLD, asked, Rank.PIN, "command line", reason)
        if cluster is not None:
            reason = f"{cluster.name} has {cluster.device_count} devices"
            count = cluster.device_count
            yield Definition(_WORLD, count, Rank.CATALOGUE, "hardware", reason)


def _keys(document: Document) -> Iterator[str]:
    written = {*document.found, *document.unknown}
    for kind in (document.kind, *families_of(document.kind)):
        yield from (f"{kind}:{key}" for key in ("*", *written))
    for row in document.file.entries if document.file is not None else ():
        if not written.isdisjoint(row.keys):
            yield from (f"slot:{slot}" for slot in row.slots)


def _is_given(document: Document, slot: str) -> bool:
    """Whether a slot is set, but to a value known only at run time (such as visible devices)."""
    if slot in _COUNTED and document.value("launcher") in _ON_EVERY_DEVICE:
        return True
    rows = document.file.entries if document.file is not None and document.unknown else ()
    return any(slot in row.slots and document.unknown.intersection(row.keys) for row in rows)


def by(document: Document, each: Definition) -> Definition:
    """A definition of a document, with the document's name as author if it is written there."""
    return replace(each, author=document.name) if each.rank == Rank.OBSERVED else each
