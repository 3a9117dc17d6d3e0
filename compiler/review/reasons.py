"""The reasons for a slot's value as a tree: what it rests on, overruled and beat."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Literal

from msgspec import Struct

from tunec.compiler.driver import Planned
from tunec.compiler.facts import Facts
from tunec.compiler.ir.ledger import Alternative, Definition, Origin, Rank
from tunec.compiler.ir.values import show
from tunec.compiler.review.candidates import (
    Considerations,
    ConsideredLayout,
    considerations,
    is_judged,
)
from tunec.schemas.source import Span, dotted
from tunec.schemas.units import format_bytes

Kind = Literal["slot", "reason", "fact", "heading", "beaten", "sum"]

_LEAST: Final = 0.005
"""Terms below this share of a sum are combined."""


class Branch(Struct, frozen=True):
    """One line of a tree, and the lines below it."""

    text: str
    kind: Kind
    below: tuple["Branch", ...] = ()
    slot: str = ""
    """The slot that the line is about; empty if it is about none."""


class Reasons(Struct, frozen=True, dict=True):
    """The reasons of a planned spec; the search runs once, when first needed."""

    planned: Planned
    deepest: int = 4
    """How many levels of slots a tree follows."""

    @cached_property
    def _considered(self) -> Considerations | None:
        return considerations(self.planned)

    def of(self, slot: str) -> Branch:
        """The tree of a slot. KeyError if no definition of the slot exists."""
        return self._slot(slot, 0, frozenset())

    def considered(self, slot: str) -> tuple[ConsideredLayout, ...]:
        """The alternatives considered for a slot; empty if the search does not decide the slot."""
        if not is_judged(self.planned.facts, slot) or self._considered is None:
            return ()
        return self._considered.of(slot)

    def _slot(self, slot: str, depth: int, seen: frozenset[str]) -> Branch:
        winner = self.planned.ledger.winner(slot)
        if winner is None:
            raise KeyError(slot)
        below = [Branch(f"{_who(winner)}: {winner.reason}", "reason")]
        below += self._rests(winner.rests, depth + 1, seen | {slot})
        if depth == 0:
            below += _overruled(self.planned.ledger.of(slot), slot, winner)
            below += self._rejected(slot, winner)
        return Branch(f"{slot} = {show(slot, winner.value)}", "slot", tuple(below), slot)

    def _rests(
        self, origins: Iterable[Origin], depth: int, seen: frozenset[str]
    ) -> Iterator[Branch]:
        for origin in origins:
            if origin.kind == "slot":
                if origin.path not in seen and depth < self.deepest:
                    yield self._slot(origin.path, depth, seen)
            else:
                yield Branch(self._fact(origin), "fact")

    def _fact(self, origin: Origin) -> str:
        if origin.kind == "spec":
            span = span_of(origin, self.planned)
            return f"{span or 'spec'}: {origin.path}" + ("" if span else " is not given")
        if origin.kind == "device" and self.planned.facts is not None:
            return _device_fact(origin, self.planned.facts)
        return f"{origin.kind}: {origin.path}"

    def _rejected(self, slot: str, winner: Definition) -> Iterator[Branch]:
        """Other values that were considered, each with its reason and sum."""
        below = tuple(self._others(slot, winner))
        if below:
            yield Branch("considered and rejected", "heading", below)

    def _others(self, slot: str, winner: Definition) -> Iterator[Branch]:
        if slot == "batch.micro":
            for each in self.considered(slot):
                if each.slots[slot] != winner.value:
                    text = f"{show(slot, each.slots[slot])}: {each.why}"
                    yield Branch(text, "beaten", _sums(each))
            return
        beaten = [each for d in self.planned.ledger.of(slot) for each in d.beat]
        by_name = {each.name: each for each in self.considered(slot)} if beaten else {}
        for other in beaten:
            if other.value != winner.value:
                yield _alternative(slot, other, by_name)


def span_of(origin: Origin, planned: Planned) -> Span | None:
    """The span of an origin in the spec's files; None if the origin is not in one."""
    if origin.kind != "spec":
        return None
    return next((s for p, s in planned.loaded.spans.items() if dotted(p) == origin.path), None)


def _who(definition: Definition) -> str:
    return "pinned" if definition.rank is Rank.PIN else f"decided by {definition.author}"


def _overruled(
    definitions: Iterable[Definition], slot: str, winner: Definition
) -> Iterator[Branch]:
    for other in definitions:
        if other is not winner and other.value != winner.value:
            text = f"{other.author} would have chosen {show(slot, other.value)}: {other.reason}"
            yield Branch(text, "beaten")


def _alternative(slot: str, other: Alternative, by_name: Mapping[str, ConsideredLayout]) -> Branch:
    """A rejected value with its reason, and with its layout's sum if a layout has it."""
    name = other.reason.partition(": ")[0]
    found = by_name.get(name)
    text = f"{show(slot, other.value)}: {other.reason}"
    if found is None:
        return Branch(text, "beaten")
    if found.state in ("chosen", "fits"):
        seconds = f"{found.step_seconds:.3g} s a step"
        return Branch(f"{show(slot, other.value)}: {name}: {found.why}, {seconds}", "beaten")
    return Branch(text, "beaten", _sums(found))


def _sums(found: ConsideredLayout) -> tuple[Branch, ...]:
    if found.state == "device memory":
        return (Branch(_sum(found.required, found.terms), "sum"),)
    if found.state == "host memory":
        return (Branch(_sum(found.host_required, found.host_terms), "sum"),)
    return ()


def _sum(total: int, terms: Mapping[str, int]) -> str:
    """`43.1 GiB = logits and loss 28.6 GiB + weights 14.5 GiB`, with small terms combined."""
    large = {name: value for name, value in terms.items() if value >= _LEAST * total}
    rest = total - sum(large.values())
    parts = [f"{name} {format_bytes(value)}" for name, value in large.items()]
    parts += [f"the rest {format_bytes(rest)}"] if rest else []
    return f"{format_bytes(total)} = {' + '.join(parts)}"


def _device_fact(origin: Origin, facts: Facts) -> str:
    name, _, field = origin.path.partition(".")
    known = {device.name: device for device in facts.devices.values()}
    value: Any = known.get(name)
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    source = _source(known[name].sources, field) if name in known else ""
    return f"device {name}: {field} = {value}" + (f" ({source})" if source else "")


def _source(sources: Mapping[str, str], field: str) -> str:
    """The source of a field, or else of the nearest field around it."""
    while field and field not in sources:
        field = field.rpartition(".")[0]
    return sources.get(field, "")
