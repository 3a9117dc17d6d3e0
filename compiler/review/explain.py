"""Explain one slot: the tree from its value down to the lines it rests on, and what it beat."""

from collections.abc import Iterator, Mapping
from typing import Any

from tunec.compiler.driver import Planned
from tunec.compiler.facts import Facts
from tunec.compiler.ir.ledger import Definition, Ledger, Origin, Rank
from tunec.compiler.ir.show import plain, show
from tunec.schemas.source import Span, dotted

_DEEPEST = 4
"""Levels of slots that a tree follows; below, `tunec explain` on the deeper slot goes on."""


def explain_text(planned: Planned, slot: str) -> str:
    """The tree as indented text. KeyError if nothing defines the slot."""
    return "\n".join(_tree(planned, slot, 0, frozenset()))


def explain_json(planned: Planned, slot: str) -> dict[str, Any]:
    """The definitions of a slot as data, the winning one first."""
    definitions = planned.ledger.of(slot)
    winner = planned.ledger.winner(slot)
    if winner is None:
        raise KeyError(slot)
    others = [each for each in definitions if each is not winner]
    return {
        "slot": slot,
        "value": plain(winner.value),
        "definitions": [definition_json(each, planned) for each in (winner, *others)],
    }


def definition_json(definition: Definition, planned: Planned) -> dict[str, Any]:
    """One definition as data."""
    return {
        "value": plain(definition.value),
        "rank": definition.rank.name,
        "author": definition.author,
        "reason": definition.reason,
        "rests": [_origin_json(origin, planned) for origin in definition.rests],
        "beat": [
            {"value": plain(other.value), "reason": other.reason} for other in definition.beat
        ],
    }


def _origin_json(origin: Origin, planned: Planned) -> dict[str, Any]:
    span = span_of(origin, planned)
    place = {"file": span.file, "line": span.line, "column": span.column} if span else {}
    return {"kind": origin.kind, "path": origin.path, **place}


def span_of(origin: Origin, planned: Planned) -> Span | None:
    """Where in the spec's files an origin stands, if it stands in one."""
    if origin.kind != "spec":
        return None
    return next((s for p, s in planned.loaded.spans.items() if dotted(p) == origin.path), None)


def _tree(planned: Planned, slot: str, depth: int, seen: frozenset[str]) -> Iterator[str]:
    winner = planned.ledger.winner(slot)
    if winner is None:
        raise KeyError(slot)
    pad = "  " * depth
    yield f"{pad}{slot} = {show(slot, winner.value)}"
    yield f"{pad}  {_who(winner)}: {winner.reason}"
    for origin in winner.rests:
        yield from _branch(planned, origin, depth + 1, seen | {slot})
    if depth == 0:
        yield from _overruled(planned.ledger, slot, winner)
        yield from _beaten(slot, winner, planned.ledger)


def _who(definition: Definition) -> str:
    return "pinned" if definition.rank is Rank.PIN else f"decided by {definition.author}"


def _branch(planned: Planned, origin: Origin, depth: int, seen: frozenset[str]) -> Iterator[str]:
    pad = "  " * depth
    if origin.kind == "slot" and origin.path not in seen and depth < _DEEPEST:
        yield from _tree(planned, origin.path, depth, seen)
    elif origin.kind == "spec":
        span = span_of(origin, planned)
        yield f"{pad}{span or 'spec'}: {origin.path}" + ("" if span else " is not given")
    elif origin.kind == "device" and planned.facts is not None:
        yield f"{pad}{_device_fact(origin, planned.facts)}"
    elif origin.kind != "slot":
        yield f"{pad}{origin.kind}: {origin.path}"


def _device_fact(origin: Origin, facts: Facts) -> str:
    name, _, field = origin.path.partition(".")
    known = {device.name: device for device in facts.devices.values()}
    value: Any = known.get(name)
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    source = _source(known[name].sources, field) if name in known else ""
    return f"device {name}: {field} = {value}" + (f" ({source})" if source else "")


def _source(sources: Mapping[str, str], field: str) -> str:
    """The source of a field, or of what holds it."""
    while field and field not in sources:
        field = field.rpartition(".")[0]
    return sources.get(field, "")


def _overruled(ledger: Ledger, slot: str, winner: Definition) -> Iterator[str]:
    for other in ledger.of(slot):
        if other is not winner and other.value != winner.value:
            yield f"  {other.author} would have chosen {show(slot, other.value)}: {other.reason}"


def _beaten(slot: str, winner: Definition, ledger: Ledger) -> Iterator[str]:
    beaten = [each for definition in ledger.of(slot) for each in definition.beat]
    if beaten:
        yield "  instead of"
    for other in beaten:
        if other.value != winner.value:
            yield f"    {show(slot, other.value)}: {other.reason}"
