"""Slots that files set, and that have no effect in their run."""

from collections.abc import Iterable
from typing import Final

from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.plan import SlotNotSet
from tunec.compiler.read import WRONG_SHAPE
from tunec.compiler.target import Entry, in_no_plan
from tunec.compiler.translate.partial import Partial

_OF_FOUR_BITS: Final = frozenset({"quantization.compute", "quantization.storage"})


def idle_slots(rows: Iterable[tuple[Entry | None, Definition]], known: Partial) -> frozenset[str]:
    """The slots that files set without an effect, and dtypes of 4 bits beside another base."""
    written = [row for row in rows if row[1].rank == Rank.OBSERVED]
    heeded = {each.slot for entry, each in written if has_effect(entry, known)}
    is_other = known.values.get("quantization.format") in ("none", "int8")
    idle = frozenset(each.slot for _, each in written) - heeded
    return idle | _OF_FOUR_BITS if is_other else idle


def has_effect(entry: Entry | None, known: Partial) -> bool:
    """Whether a row applies to a run; true if that is undecided, or it is only read."""
    try:
        return entry is None or entry.when is in_no_plan or known.ask(entry.when)
    except (SlotNotSet, *WRONG_SHAPE):
        return True
