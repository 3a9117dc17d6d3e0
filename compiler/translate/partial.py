"""A plan with only some known slots, and questions that those can answer."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

from msgspec import Struct, field

from tunec.compiler.ir.plan import Plan, SlotNotSet
from tunec.compiler.ir.slots import GROUPS, SLOTS

_Answer = TypeVar("_Answer")

_NOTHING: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType({})


class _Group:
    """A group of slots that only has the known ones."""

    __slots__ = ("_name", "_values")

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self._name = name
        self._values = values

    def __getattr__(self, attribute: str) -> Any:
        slot = f"{self._name}.{attribute.rstrip('_')}"
        if slot not in SLOTS:
            raise AttributeError(attribute)
        if slot not in self._values:
            raise SlotNotSet(slot)
        return self._values[slot]


class Partial(Struct, frozen=True):
    """The known part of a plan."""

    values: Mapping[str, Any]
    """The value of each known slot."""
    possible: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: _NOTHING)
    """The possible values of some unknown slots."""

    def plan(self) -> Plan:
        """The plan; reading an unknown slot raises SlotNotSet."""
        groups: dict[str, Any] = {name: _Group(name, self.values) for name in GROUPS}
        return Plan(**groups)

    def ask(self, question: Callable[[Plan], _Answer]) -> _Answer:
        """The answer that holds for all values of unknown slots.

        Raises SlotNotSet if it depends on them. A slot with few values is tried with each: a row
        that writes the same for every engine does not need to know the engine.
        """
        try:
            return question(self.plan())
        except SlotNotSet as unsaid:
            options = self._options(unsaid.slot)
            try:
                answers = [self._with(unsaid.slot, each).ask(question) for each in options]
            except SlotNotSet:
                raise unsaid from None
            if not answers:
                raise
            return _agreed(answers, unsaid)

    def _with(self, slot: str, value: Any) -> "Partial":
        return Partial({**self.values, slot: value}, self.possible)

    def _options(self, slot: str) -> tuple[Any, ...]:
        if slot in self.possible:
            return self.possible[slot]
        kind = SLOTS[slot].type
        if kind is bool:
            return (False, True)
        return get_args(kind) if get_origin(kind) is Literal else ()


def _agreed(answers: list[_Answer], otherwise: SlotNotSet) -> _Answer:
    if any(answer != answers[0] for answer in answers):
        raise otherwise
    return answers[0]
