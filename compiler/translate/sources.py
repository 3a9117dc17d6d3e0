"""The files that are translated: one ledger of what they set, and all errors in them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.ir.invariants import INVARIANTS, Invariant
from tunec.compiler.ir.ledger import Definition, Ledger, Rank
from tunec.compiler.ir.plan import SlotNotSet
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.values import show
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.documents import Reading
from tunec.compiler.lints.environment import Environment
from tunec.compiler.read import WRONG_SHAPE
from tunec.compiler.target import Entry, Phrase, Target, in_every_plan
from tunec.compiler.translate.admission import with_newer_names
from tunec.compiler.translate.documents import documents_of
from tunec.compiler.translate.examples import of_examples, without_their_scripts
from tunec.compiler.translate.follows import with_consequences
from tunec.compiler.translate.idle_slots import has_effect, idle_slots
from tunec.compiler.translate.leftovers import Read, reads
from tunec.compiler.translate.partial import Partial
from tunec.compiler.translate.phrases import phrases_in
from tunec.compiler.translate.python_scripts import complete_scripts, left_in_code, of_scripts
from tunec.compiler.translate.scripts import is_given, unsettled, without_plan
from tunec.compiler.translate.statements import said_by, with_defaults
from tunec.compiler.translate.unread_files import unread
from tunec.compiler.translate.written_targets import is_dialect
from tunec.schemas.frozen import replace

_TRL: Final = "trl"


class Sources(Struct, frozen=True):
    """What files set together."""

    run: LintContext
    ledger: Ledger
    known: Partial
    """The effective value of each known slot."""
    disputed: Mapping[str, tuple[Definition, ...]]
    """Slots that no file sets, and whose defaults differ between consumers."""
    reads: tuple[Read, ...]
    """Every leaf key of the files, with its outcome."""
    diagnostics: tuple[Diagnostic, ...]
    idle: frozenset[str] = frozenset()
    """Slots that the files set only by keys without effect in their run."""
    phrased: frozenset[tuple[str, str]] = frozenset()
    """Keys that phrases turn into a slot, each with the name of its document."""
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def leftovers(self) -> tuple[Read, ...]:
        """Keys without a slot."""
        return tuple(each for each in self.reads if each.is_left)

    @property
    def programs(self) -> frozenset[str]:
        """The targets among the readers that are one program, started by its own script."""
        tables = (each.target for each in self.run.documents if each.target is not None)
        return frozenset(
            table.name
            for table in tables
            if (script := table.cannot.get("launch.script")) is not None and script.loses
        )

    def is_phrase(self, place: Place) -> bool:
        """Whether a key expresses a slot by a phrase (`all` linear layers)."""
        return (place.document.name, place.path) in self.phrased

    def is_written(self, slot: str) -> bool:
        """Whether a file or the command line sets the slot."""
        winner = self.ledger.winner(slot)
        return winner is not None and winner.rank >= Rank.OBSERVED

    def is_given(self, slot: str) -> bool:
        """Whether the command line sets the slot."""
        return is_given(self.ledger, slot)

    def label(self, slot: str) -> Label:
        """The place that sets a slot; without one, the slot's name."""
        return _label(self.run, slot, self.ledger.winner(slot))


def sources_of(
    reading: Reading, run: LintContext, given: Iterable[Definition], *, to_files: bool = False
) -> Sources:
    """One ledger of documents, given slots, and what follows from both.

    `given` overrides what files set. `to_files`: the slots become files without a spec, so that one
    may hold a phrase's value, such as `all-linear`, and nobody decides what no file sets.
    """
    examples = tuple(of_examples(run))
    documents = documents_of(without_their_scripts(reading.documents), run)
    run = replace(run, documents=documents.every)
    run = replace(run, environment=_released(run))
    run = replace(run, documents=tuple(with_newer_names(each, run) for each in run.documents))
    tables = tuple(
        {each.target.name: each.target for each in run.documents if each.target}.values()
    )
    rows = [row for row in said_by(run) if not (documents.has_unknown_program and _is_trls(row[1]))]
    said, phrased = _phrased(run) if to_files else ((), frozenset[tuple[str, str]]())
    beside = (
        *given,
        *said,
        *examples,
        *of_scripts(run),
        *(_of_dialects(run) if to_files else ()),
        *_facts(run),
    )
    beside = (*beside, *_surroundings(run))
    reads_deepspeed = any(each.kind == "deepspeed" for each in run.documents)
    ledger, possible = _ledger(rows, beside, tables, reads_deepspeed=reads_deepspeed)
    rows = _of_effect(rows, _known(ledger, possible))
    ledger, possible = _ledger(rows, beside, tables, reads_deepspeed=reads_deepspeed)
    if is_dialect(run) and ledger.winner("model.kind") is None:
        possible = {**possible, "model.kind": _WRITING}
    known = _known(ledger, possible)
    idle, values = idle_slots(rows, known), known.values
    heeded = {slot: value for slot, value in values.items() if slot not in idle}
    found = (
        *reading.faults,
        *unread(reading),
        *without_plan(reading.documents),
        *unsettled(run, ledger, complete_scripts(run), is_decided=not to_files),
        *left_in_code(run, ledger),
        *_contradictions(run, ledger),
        *_breaches(run, ledger, Partial(heeded, possible)),
    )
    pinned = [slot for slot in values if is_given(ledger, slot)]
    keys = (read for each in run.documents for read in reads(run, each, known, pinned))
    every = tuple(_heeded(each, idle) for each in keys)
    disputed = dict(_disputed(ledger))
    return Sources(run, ledger, known, disputed, every, found, idle, phrased, reading.sources)


def _phrased(run: LintContext) -> tuple[tuple[Definition, ...], frozenset[tuple[str, str]]]:
    """The slots that phrases express, and their keys, each with the name of its document."""
    said, keys = list[Definition](), set[tuple[str, str]]()
    for document in run.documents:
        for phrase, words in phrases_in(document):
            if not _is_on(run, phrase.on_devices):
                continue
            for slot, value in words.items() if words.keys() <= SLOTS.keys() else ():
                there = [key for key in phrase.keys if key in document.flat]
                said.append(_by_phrase(document, phrase, slot, value, there))
                keys |= {(document.name, key) for key in there}
    return tuple(said), frozenset(keys)


def _is_on(run: LintContext, devices: tuple[str, bool] | None) -> bool:
    """Whether the run's devices have a dtype, or have it not; unknown ones have each."""
    if devices is None:
        return True
    (dtype, has), device = devices, run.environment.weakest
    return has == (device is None or dtype in device.rates)


_KIND: Final = "model.kind"
_WRITING: Final = ("causal-lm", "vision-language")
"""Kinds of models that the programs of dialects train."""


def _by_phrase(
    document: Document, phrase: Phrase, slot: str, value: Any, there: Sequence[str]
) -> Definition:
    """The definition of a slot by a phrase's keys; without keys, it is its program's default."""
    if there:
        span, reason = document.flat[there[0]].span, f"set by {', '.join(there)}"
        return Definition(slot, value, Rank.OBSERVED, document.name, reason, span=span)
    package = document.target.package if document.target is not None else document.name
    reason = f"{phrase.keys[0]} is absent: the default of {package}"
    return Definition(slot, value, Rank.CONSUMER, package, reason)


def _of_dialects(run: LintContext) -> Iterator[Definition]:
    """Slots that a dialect's files leave to its program, and the new files must set.

    The length of a sample includes the tokens of its images, unless a sample is an image. A
    dialect's settings of FSDP are the trainer's, not the launcher's.
    """
    by_dialect = is_dialect(run) and not any(map(_is_of_pictures, run.documents))
    if by_dialect or any(map(_says_length, run.documents)):
        for slot in ("data.images", "data.image_tokens"):
            reason = "the length that was read holds images"
            yield Definition(slot, 0, Rank.DERIVED, "translate", reason)
    if by_dialect:
        reason = "the new files say it themselves"
        yield Definition("launch.launcher", "torchrun", Rank.DERIVED, "translate", reason)
        if any(each.value("bf16") == "auto" for each in run.documents):
            reason = "bf16 auto is on, unless the devices have none"
            for slot in ("precision.compute", "states.weights", "quantization.compute"):
                yield Definition(slot, "bf16", Rank.DERIVED, "translate", reason)


def _says_length(document: Document) -> bool:
    """Whether a file sets the maximum length of a text sample."""
    rows = () if document.file is None else document.file.entries
    keys = (key for row in rows if "data.sequence" in row.slots for key in row.keys)
    return any(key in document.flat for key in keys)


def _is_of_pictures(document: Document) -> bool:
    """Whether a program only trains denoisers."""
    kinds = document.target.cannot.get(_KIND) if document.target is not None else None
    return kinds is not None and kinds.harmless == ("diffusion",)


def _heeded(read: Read, idle: frozenset[str]) -> Read:
    """The key, marked as idle if its slots have no effect."""
    is_idle = bool(read.slots) and idle.issuperset(read.slots)
    return replace(read, fate="idle") if is_idle else read


def _known(ledger: Ledger, possible: Mapping[str, tuple[Any, ...]]) -> Partial:
    """The effective values, without disputed slots."""
    disputed = dict(_disputed(ledger))
    values = {each.slot: each.value for each in ledger.winners() if each.slot not in disputed}
    return Partial(values, possible)


def _of_effect(
    rows: Sequence[tuple[Entry | None, Definition]], known: Partial
) -> list[tuple[Entry | None, Definition]]:
    """The rows, without ineffective keys if another key of the run sets the slot.

    DeepSpeed casts the module itself, even if the trainer's own file does not mention it.
    """
    idle = idle_slots(rows, known)
    casts = known.values.get("parallel.engine") == "deepspeed"
    return [
        row
        for row in rows
        if row[1].rank != Rank.OBSERVED
        or ((row[1].slot in idle or has_effect(row[0], known)) and not (casts and _casts(row[1])))
    ]


def _casts(definition: Definition) -> bool:
    return definition.slot == "states.autocast" and definition.value is True


# ── the ledger ───────────────────────────────────────────────────────────────────────────────────


def _released(run: LintContext) -> Environment:
    """The environment with the newest release of each program that reads a file, unless given.

    A configuration of DeepSpeed is passed on by the program that reads the other files.
    """
    newest: dict[str, str] = {}
    handed_on = [each for each in run.documents if each.kind == "deepspeed"]
    for document in (*(each for each in run.documents if each not in handed_on), *handed_on):
        if document.target is not None:
            newest.setdefault(document.target.package, document.target.latest)
    return replace(run.environment, software={**newest, **run.environment.software})


def _is_trls(definition: Definition) -> bool:
    """Whether it is TRL's default, which other programs' flags do not have."""
    return definition.rank == Rank.CONSUMER and definition.author == _TRL


def _ledger(
    rows: Iterable[tuple[Entry | None, Definition]],
    beside: Iterable[Definition],
    tables: Sequence[Target],
    *,
    reads_deepspeed: bool,
) -> tuple[Ledger, Mapping[str, tuple[Any, ...]]]:
    """Written and derived slots, then the defaults of applicable rows, and their consequences."""
    written = tuple(each for _, each in rows if each.rank != Rank.CONSUMER)
    defaults = [row for row in rows if row[1].rank == Rank.CONSUMER]
    said = Ledger().add((*written, *beside))
    always = [row for row in defaults if row[0] is None or row[0].when is in_every_plan]
    first = with_defaults(said, always)
    followed, _ = with_consequences(first, tables, reads_deepspeed=reads_deepspeed)
    rest = [row for row in defaults if row[0] is not None and row[0].when is not in_every_plan]
    whole = with_defaults(followed, rest)
    return with_consequences(whole, tables, reads_deepspeed=reads_deepspeed)


def _surroundings(run: LintContext) -> Iterator[Definition]:
    """The number of processes by --world-size or the hardware."""
    world = run.slot("parallel.world")
    every = run.definitions("parallel.world") if world is not None else ()
    yield from (each for each in every if each.author in ("command line", "hardware"))


def _facts(run: LintContext) -> Iterator[Definition]:
    """Facts of model and hardware, if they are given or known by name.

    The weights stay as files name them: a model given beside them only describes their
    architecture.
    """
    model, cluster = run.model, run.environment.cluster
    if model is not None:
        reason = "the model that is named"
        yield Definition("model.path", model.path, Rank.CATALOGUE, "catalogue", reason)
        facts = {
            "family": model.architecture.family,
            "kind": model.architecture.kind,
            "parameters": model.architecture.parameters,
        }
        for name, value in facts.items():
            reason = f"the architecture of {model.path}"
            yield Definition(f"model.{name}", value, Rank.CATALOGUE, "catalogue", reason)
    if cluster is not None:
        sizes = {node.device_count for node in cluster.nodes}
        if len(sizes) == 1:
            per_node = sizes.pop()
            counts = {"nodes": cluster.device_count // per_node, "per_node": per_node}
            for name, count in counts.items():
                yield Definition(f"devices.{name}", count, Rank.CATALOGUE, "hardware", cluster.name)
        vendors = {each.vendor for each in run.environment.devices.values()}
        if len(vendors) == 1:
            vendor = vendors.pop()
            yield Definition("devices.vendor", vendor, Rank.CATALOGUE, "hardware", cluster.name)


def _disputed(ledger: Ledger) -> Iterator[tuple[str, tuple[Definition, ...]]]:
    for slot in ledger.entries:
        winner = ledger.winner(slot)
        every = tuple({each.value: each for each in ledger.of(slot)}.values())
        if winner is not None and winner.rank == Rank.CONSUMER and len(every) > 1:
            yield slot, every


# ── what is wrong with them ──────────────────────────────────────────────────────────────────────


def _contradictions(run: LintContext, ledger: Ledger) -> Iterator[Diagnostic]:
    """Two files set one slot to two values."""
    seen: set[str] = set()
    for one, other in ledger.contradictions():
        if one.rank == Rank.OBSERVED and one.slot not in seen:
            seen.add(one.slot)
            values = f"{show(one.slot, one.value)} and {show(one.slot, other.value)}"
            yield Diagnostic(
                "E0906",
                "error",
                f"the files set {one.slot} to two values: {values}",
                tuple(_label(run, one.slot, each) for each in (one, other)),
                help=f"make them agree, or choose with --set {one.slot}=VALUE",
            )


def _breaches(run: LintContext, ledger: Ledger, known: Partial) -> Iterator[Diagnostic]:
    """Settings of the files that exclude each other."""
    for each in INVARIANTS:
        written = [slot for slot in each.slots if _is_written(ledger, slot)]
        if written and not _holds(each, known):
            values = ", ".join(f"{slot} is {show(slot, known.values[slot])}" for slot in each.slots)
            yield Diagnostic(
                "E0906",
                "error",
                f"{each.text}, but {values}",
                tuple(_label(run, slot, ledger.winner(slot)) for slot in written),
                help=f"change one of them, or choose with --set {written[0]}=VALUE",
            )


def _holds(invariant: Invariant, known: Partial) -> bool:
    """Whether an invariant holds, or is undecided."""
    if any(slot not in known.values for slot in invariant.slots):
        return True
    try:
        return invariant.holds(known.plan())
    except (SlotNotSet, *WRONG_SHAPE):
        return True


def _is_written(ledger: Ledger, slot: str) -> bool:
    winner = ledger.winner(slot)
    return winner is not None and winner.rank >= Rank.OBSERVED


def _label(run: LintContext, slot: str, definition: Definition | None) -> Label:
    place = run.place(definition)
    if definition is None or definition.span is None:
        return Label("", path=slot)
    text = f"{slot} {show(slot, definition.value)}"
    return Label(text, definition.span, place.path if place else slot)
