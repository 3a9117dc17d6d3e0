"""The comments and diagnostics of a spec that was made from files."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined, shown
from tunec.compiler.frontend.nodes import descend, place
from tunec.compiler.frontend.parse import parse
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.values import show
from tunec.compiler.lints.environment import Environment
from tunec.compiler.translate.accounts import with_effect, without_effect
from tunec.compiler.translate.foundation import (
    CONFIG,
    DATA,
    HARDWARE,
    METHOD,
    MODEL,
    REWARDS,
    FieldPath,
    Foundation,
)
from tunec.compiler.translate.leftovers import MEETING, hidden
from tunec.compiler.translate.passthrough import DroppedKey
from tunec.compiler.translate.reconciliation import ReconciledSpec
from tunec.compiler.translate.scripts import not_understood, slots_of
from tunec.compiler.translate.sources import Sources
from tunec.compiler.translate.translate import assumed, is_named, leaving, parts_only
from tunec.compiler.translate.written_targets import runner
from tunec.schemas.frozen import replace
from tunec.schemas.source import Path

_LEFT: Final = "not-carried-over"
_PLACES: Final[Mapping[FieldPath, tuple[str, str, str]]] = {
    MODEL: (
        "the model",
        "one of `tunec catalog models`, or a path to a config.json",
        "--model NAME",
    ),
    CONFIG: (
        "the model's architecture",
        "the path of its config.json",
        "--model with its config.json, or with a catalogue model of the same architecture",
    ),
    METHOD: ("the training method", "full, lora, qlora or int8_lora", "--set adapter.kind=VALUE"),
    HARDWARE: (
        "the hardware",
        "one of `tunec catalog clusters`, or a device with a count",
        "--hardware NAME",
    ),
    REWARDS: (
        "the reward functions",
        "names of functions that reward an answer",
        "--set objective.rewards=[NAME]",
    ),
    DATA: ("the training data", "a file, a directory or a data set name", "--set data.train=NAME"),
}
"""Fields that may be missing: their name, possible values, and the option that sets them."""


# ── beside its lines and below it ────────────────────────────────────────────────────────────────


def comments(sources: Sources, found: ReconciledSpec, base: Foundation) -> dict[Path, str]:
    """The comments beside lines: where a pin was read, and possible values of an open field."""
    read = {slot: _origin(sources.ledger.winner(slot)) for slot in found.candidate.pins}
    pins: dict[Path, str] = {("pin", slot): text for slot, text in read.items() if text}
    return {**pins, **{path: f"to fill in: {_PLACES[path][1]}" for path in base.missing}}


def _origin(winner: Definition | None) -> str | None:
    if winner is None or winner.rank == Rank.DERIVED:
        return None
    if winner.span is not None:
        return f"{PurePath(winner.span.file).name}:{winner.span.line}"
    return f"default of {winner.author}" if winner.rank == Rank.CONSUMER else winner.author


def footer(dropped: Sequence[DroppedKey]) -> str:
    """The keys that the spec does not express, as a comment."""
    if not dropped:
        return ""
    lines = (f"{_where(each)}  {each.place.path} {shown(each.place.value)}" for each in dropped)
    return "\n# not carried over:\n" + "".join(f"#   {line}\n" for line in lines)


def _where(each: DroppedKey) -> str:
    span = each.place.key_span
    return f"{PurePath(span.file).name}:{span.line}"


def lacking(base: Foundation) -> tuple[str, ...]:
    """Missing fields without which no plan is possible, each with its option."""
    return tuple(
        f"no file gives {what}: use {option}"
        for what, _, option in (
            _PLACES[path] for path in base.missing if path not in (DATA, REWARDS)
        )
    )


# ── what is to be said of it ─────────────────────────────────────────────────────────────────────


def unsaid(text: str, name: str, base: Foundation) -> Iterator[Diagnostic]:
    """An error at each field that must be filled in."""
    root, _ = parse(text, name, "yaml")
    if root is None:
        return
    for path in base.missing:
        what, _, option = _PLACES[path]
        node, _ = descend(root, path)
        yield Diagnostic(
            "E0907",
            "error",
            f"a spec needs {'.'.join(path)}, but no file gives {what}",
            (Label("to fill in", node.key_span or place(node), ".".join(path)),),
            help=f"write it there, or use {option}",
        )


def findings(
    sources: Sources,
    found: ReconciledSpec,
    dropped: Iterable[DroppedKey],
    without: Collection[str],
    environment: Environment,
) -> Iterator[Diagnostic]:
    """Diagnostics about keys that the spec does not express, and about assumptions."""
    every = tuple(dropped)
    yield from (_dropped(each, sources) for each in every if each.is_harmless is None)
    yield from without_effect([(e.place, e.reason) for e in every if e.is_harmless])
    yield from with_effect([(e.place, e.reason) for e in every if e.is_harmless is False])
    yield from _foreign(sources, without)
    yield from _unread(sources, without)
    yield from _unmet(sources, found)
    yield from _left(sources, found)
    yield from assumed(sources, environment)


def _dropped(each: DroppedKey, sources: Sources) -> Diagnostic:
    """The diagnostic of a dropped key: an error if it has slots, else a warning."""
    at, value = each.place, shown(each.place.value)
    every = tuple(dict.fromkeys(slots_of(at.document, at.path)))
    slots = tuple(slot for slot in every if slot not in sources.known.values) or every
    if slots:
        options = " ".join(f"--set {slot}=VALUE" for slot in slots)
        return not_understood(
            f"{at.path} {value} cannot be expressed in a spec",
            (at.key_label("would be dropped"),),
            f"use {options}, or leave it out with {leaving(at.path)}",
            (each.reason,),
        )
    return Diagnostic(
        _LEFT,
        "warning",
        f"the spec does not contain {at.path} {value}",
        (at.key_label("left behind"),),
        (each.reason,),
        help=f"check that the new run has it, or silence this with {leaving(at.path)}",
    )


def _foreign(sources: Sources, without: Collection[str]) -> Iterator[Diagnostic]:
    """Notes about dialects that another program will run, and about meanings only their own has."""
    for document in sources.run.documents:
        if document.target is None:
            continue
        own, other = document.target.name, runner(document.target)
        if own != other:
            yield Diagnostic(
                _LEFT,
                "note",
                (
                    f"{document.name} is a file of {own}, which tunec does not write: {other} will "
                    "run the spec"
                ),
                (Label("", document.start()),),
                help=f"compare the first steps of the two runs: {other} reads data differently",
            )
    yield from parts_only(sources, without)


def _unread(sources: Sources, without: Collection[str]) -> Iterator[Diagnostic]:
    """Files that could not be read, and keys whose values only a running script would show."""
    for each in sources.run.missing:
        if not is_named(each.place.path, without):
            found = not_understood(
                f"{each.path} is named here but cannot be read: {each.why}",
                (each.place.label("named here"),),
                f"supply the file, or leave it out with {leaving(each.place.path)}",
            )
            is_on_machines = each.place.path.rpartition(".")[2] in MEETING
            yield replace(found, id=_LEFT, severity="warning") if is_on_machines else found
    for document in sources.run.documents:
        for key in hidden(document):
            if not is_named(key, without):
                yield not_understood(
                    f"the value of {key} is known only when {document.name} runs",
                    (Label("in this script", document.start(), key),),
                    f"leave it out with {leaving(key)}",
                )


def _unmet(sources: Sources, found: ReconciledSpec) -> Iterator[Diagnostic]:
    for slot, value in found.unmet.items():
        read = sources.known.values[slot]
        yield Diagnostic(
            _LEFT,
            "warning",
            (
                f"the files set {slot} to {show(slot, read)}, but the spec results in "
                f"{show(slot, value)}"
            ),
            (sources.label(slot),),
        )


_MEANT: Final = (
    *("data.sequence", "precision.compute", "batch.global", "optimizer.name"),
    *("optimizer.learning_rate", "schedule.kind", "schedule.epochs"),
)
"""Slots that a user would set; the others may be left to tunec."""


def _left(sources: Sources, found: ReconciledSpec) -> Iterator[Diagnostic]:
    """A note about important slots that no file sets, so that tunec decides them."""
    said = {slot for each in found.candidate.stated for slot in each.slots}
    left = [slot for slot in _MEANT if slot not in (*said, *sources.known.values)]
    if sources.known.values.get("model.kind") == "diffusion" and "data.sequence" in left:
        left.remove("data.sequence")
    if left:
        yield Diagnostic(
            "left-unsaid",
            "note",
            f"no file sets {joined(left, 'and')}: tunec will decide",
            (Label("", path=left[0]),),
            help="set the values with --set SLOT=VALUE or in the spec",
        )
