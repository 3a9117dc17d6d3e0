"""Defaults of programs for arguments without a slot, where two of them train differently.

A parser of one program leaves such an argument at another value than that of the next, or the
program sets it itself. A translation writes the value that was in force, or reports the change.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.facts.model import experts
from tunec.compiler.lints.kinds import kind_of
from tunec.compiler.target import Dialect, File, Json, Target
from tunec.compiler.translate.admission import knows, schema_of
from tunec.compiler.translate.leftovers import Read
from tunec.compiler.translate.sources import Sources
from tunec.compiler.translate.statements import dialect_of
from tunec.schemas.source import start_of


class Decisive(Struct, frozen=True):
    """An argument whose default decides how a run trains."""

    says: Callable[[Any], str]
    """What a program does at a value, after its name."""
    matters: Callable[[Sources], bool]
    """Whether the argument has an effect in a run."""
    lacking: tuple[Json, ...] = ()
    """The value of which programs without the argument train; empty if that is unknown."""


def _averages(value: Any) -> str:
    devices = "all devices together" if value else "each device by itself"
    return f"averages the loss of a step over the tokens of {devices}"


def _is_averaged(sources: Sources) -> bool:
    """Whether several devices share the tokens of a step."""
    known = sources.known.values
    return known.get("parallel.world") != 1 and known.get("objective.kind", "sft") == "sft"


def _balances(value: Any) -> str:
    weight = "the model's own weight" if value is None else f"a weight of {value}"
    return f"balances experts by a loss of {weight}" if value != 0 else "does not balance experts"


def _has_experts(sources: Sources) -> bool:
    return experts(sources.run) > 0


def _counts(value: Any) -> str:
    part = "answers alone" if value else "every token"
    return f"computes the loss of a conversation over {part}"


def _has_conversations(sources: Sources) -> bool:
    """Whether a run is given texts of several speakers, as far as is known."""
    known = sources.known.values
    is_supervised = known.get("objective.kind", "sft") == "sft"
    return is_supervised and known.get("data.format") in (None, "sharegpt", "alpaca")


DECISIVE: Final[Mapping[str, Decisive]] = {
    "assistant_only_loss": Decisive(_counts, _has_conversations),
    "average_tokens_across_devices": Decisive(_averages, _is_averaged, (False,)),
    "router_aux_loss_coef": Decisive(_balances, _has_experts, (0.0,)),
    "truncation_mode": Decisive(
        lambda value: f"cuts long samples by {value}",
        lambda sources: sources.known.values.get("objective.kind") == "dpo",
    ),
}


class Differing(Struct, frozen=True):
    """An argument at the value that was in force, where the new program's default is another."""

    read: Read
    keys: Mapping[str, Json]
    """What the new file gets for it."""
    apart: str
    """What the new program does instead; empty if it does the same."""


def differing(
    document: Document,
    target: Target,
    file: File,
    written: Mapping[str, Json],
    sources: Sources,
    dialect: Dialect,
) -> Iterator[Differing]:
    """The decisive arguments that a document leaves out, or that the new file cannot hold."""
    own, said = document.target, {key: each.value for key, each in document.flat.items()}
    if own is None or document.file is None:
        return
    for key, decisive in DECISIVE.items():
        is_taken = knows(target, file, dialect, key) or any(key in each.keys for each in file.takes)
        if not decisive.matters(sources) or (key in said and is_taken):
            continue
        old = _in_force(own, document.file, dialect_of(sources.run, own), key, said)
        new = _in_force(target, file, dialect, key, written)
        if old and new and (old != new or key in said):
            absent = Place(document, key, Node(start_of(document.name), old[0]))
            read = Read(key, document.get(key) or absent, "default")
            keys = _keys(target, file, dialect, key, old[0]) if old != new else {}
            sides = ((own, old[0]), (target, new[0]))
            does = ", and ".join(f"{each.name} {decisive.says(value)}" for each, value in sides)
            yield Differing(read, keys, does if old != new and not keys else "")


def _keys(
    target: Target, file: File, dialect: Dialect, key: str, value: Json
) -> Mapping[str, Json]:
    """The keys of a file for an argument's value; empty if there are none."""
    if knows(target, file, dialect, key):
        return {key: value}
    made = (each.write({key: value}) for each in file.takes if key in each.keys)
    return next(made, None) or {}


def _in_force(
    target: Target, file: File, dialect: Dialect, key: str, said: Mapping[str, Json]
) -> tuple[Json, ...]:
    """The value of an argument in a file: written, or its program's default; empty: unknown."""
    own = {**file.defaults(said), **said}
    if key in own:
        return (own[key],)
    known = schema_of(file, dialect).get("properties", {})
    if key in known:
        return (known[key]["default"],) if "default" in known[key] else ()
    is_trainer = kind_of(target, file) in (*TRL, "hf")
    return DECISIVE[key].lacking if is_trainer and known else ()
