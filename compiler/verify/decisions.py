"""Checks that a file of the bundle sets each decided slot, or that there is a reason why not.

The files are read back with the rows that wrote them. `check` covers what programs make of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.extra import SLOT as EXTRA
from tunec.compiler.ir.extra import extras
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.values import show
from tunec.compiler.read import WRONG_SHAPE, settle
from tunec.compiler.target import Entry, Target
from tunec.compiler.verify.check import Check, equal
from tunec.compiler.verify.contract import Case
from tunec.compiler.verify.delivery import places
from tunec.compiler.verify.report import Places, label_of
from tunec.compiler.verify.warmup import same_warmup


class LostSlot(Struct, frozen=True):
    """A decided slot that no file sets, without a target giving a reason."""

    slot: str
    value: Any
    file: str = ""
    """The file that should set the slot; empty if no target has a row for it."""
    keys: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    """The row's keys; without a row, why each target has none."""


class Decisions(Struct, frozen=True):
    """The decided slots of one bundle."""

    spec: str
    targets: tuple[str, ...]
    said: tuple[str, ...]
    told: Mapping[str, tuple[str, ...]]
    """The slots that no file has to set, by reason."""
    lost: tuple[LostSlot, ...]


def decisions(cases: Sequence[Case]) -> Decisions:
    """Which slots of its plan a bundle's files set; `cases` has one for each of its targets."""
    rows = [each for case in cases for each in _rows(case)]
    said = {slot for each in rows for slot in each.said}
    told: dict[str, list[str]] = {}
    lost: list[LostSlot] = []
    for slot in SLOTS:
        if slot in said or slot == EXTRA:
            continue
        found = _unsaid(slot, cases, rows)
        if isinstance(found, LostSlot):
            lost.append(found)
        else:
            told.setdefault(found, []).append(slot)
    reasons = {reason: tuple(slots) for reason, slots in told.items()}
    names = tuple(case.target.name for case in cases)
    return Decisions(
        cases[0].spec, names, tuple(s for s in SLOTS if s in said), reasons, tuple(lost)
    )


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────


class _Row(Struct, frozen=True):
    """A row that applies to the plan, and its slots that can be read back from the file."""

    target: str
    path: str
    entry: Entry
    said: tuple[str, ...]


def _rows(case: Case) -> Iterator[_Row]:
    passed = {each.path for each in extras(case.plan)}
    for file in case.target.files:
        if file.name not in case.expected:
            continue
        delivered = case.delivered.get(file.name)
        found = {} if delivered is None else places(file, delivered)
        values = {key: each.value for key, each in found.items()}
        path = f"{case.target.name}/{file.name}" if delivered is None else delivered.path
        for entry in case.rows(file.name):
            heard = delivered is not None and (_yields(entry, passed) or _back(entry, case, values))
            said = tuple(slot for slot in entry.slots if heard is True or slot in (heard or ()))
            yield _Row(case.target.name, path, entry, said)


def _yields(entry: Entry, passed: set[str]) -> bool:
    """Whether a key that the spec passes through replaces a row."""
    return entry.yields and any(key.endswith(path) for key in entry.keys for path in passed)


def _back(entry: Entry, case: Case, values: Mapping[str, Any]) -> tuple[str, ...]:
    """The slots of a row whose planned values can be read back from a file."""
    present = {key: values[key] for key in entry.keys if values.get(key) is not None}
    try:
        back = settle(entry, present) if present else _unasked(entry, case)
        back = {**back, **same_warmup(entry, case, present)}
    except WRONG_SHAPE:
        return ()
    return tuple(s for s in entry.slots if s in back and equal(back[s], case.plan[s]))


def _unasked(entry: Entry, case: Case) -> Mapping[str, Any]:
    return entry.defaults_at(case.dialect[entry.package])


# ── what no file says ────────────────────────────────────────────────────────────────────────────


def _unsaid(slot: str, cases: Sequence[Case], rows: Sequence[_Row]) -> str | LostSlot:
    """Why no file has to set a slot, or the slot as `LostSlot` if a file should have set it."""
    value = cases[0].plan[slot]
    for each in rows:
        if slot in each.entry.slots:
            return LostSlot(slot, value, each.path, each.entry.keys)
    final: list[str] = []
    others: list[str] = []
    for case in cases:
        cannot = case.target.cannot.get(slot)
        if cannot is None:
            return LostSlot(
                slot, value, reasons=(f"{case.target.name} has neither a key nor a reason",)
            )
        (others if cannot.elsewhere(case.plan) else final).append(cannot.reason)
    if final:
        return final[0]
    named = zip((case.target.name for case in cases), others, strict=True)
    if _is_whole([case.target for case in cases]):
        return LostSlot(slot, value, reasons=tuple(f"{name}: {reason}" for name, reason in named))
    return others[0]


def _is_whole(targets: Sequence[Target]) -> bool:
    """Whether a bundle has a trainer and a starter, so that no other file sets anything."""
    trains = any(each.counting is not None for each in targets)
    return trains and any(each.starts for each in targets)


# ── for people and machines ──────────────────────────────────────────────────────────────────────

_SHOWN: Final = 3


def lines(every: Sequence[Decisions]) -> Iterator[str]:
    """The reasons why slots are not set in a file, one line each, with some of their slots."""
    reasons: dict[str, dict[str, None]] = {}
    for each in every:
        for reason, slots in each.told.items():
            reasons.setdefault(reason, {}).update(dict.fromkeys(slots))
    for reason, found in reasons.items():
        yield f"in no file: {_named(tuple(found))}: {reason}"


def _named(slots: Sequence[str]) -> str:
    groups: dict[str, list[str]] = {}
    for slot in slots:
        groups.setdefault(slot.partition(".")[0], []).append(slot)
    names = [text for group, found in groups.items() for text in _group(group, found)]
    if len(names) <= _SHOWN:
        return joined(names, "and")
    return f"{', '.join(names[:_SHOWN])} and {len(names) - _SHOWN} more"


def _group(group: str, found: Sequence[str]) -> Sequence[str]:
    """The slots of a group, shortened to `zero.*` if all slots of the group are there."""
    whole = sum(slot.group == group for slot in SLOTS.values())
    return (f"{group}.*",) if 1 < whole == len(found) else found


def to_json(each: Decisions) -> dict[str, Any]:
    """The decisions of a bundle as `--format json` prints them."""
    return {
        "spec": each.spec,
        "targets": list(each.targets),
        "said": list(each.said),
        "unsaid": [{"reason": why, "slots": list(slots)} for why, slots in each.told.items()],
        "lost": [lost.slot for lost in each.lost],
    }


def diagnostics(
    every: Sequence[Decisions], checks: Sequence[Check], where: Places
) -> Iterator[Diagnostic]:
    """A diagnostic for each slot that no file sets, unless a program already reported the slot."""
    heard = {(check.spec, each.slot) for check in checks for each in check.differences}
    absent = {each.file for check in checks for each in check.differences if not each.key}
    for found in every:
        for lost in found.lost:
            if (found.spec, lost.slot) not in heard and lost.file not in absent:
                yield _lost(lost, where)


def _lost(lost: LostSlot, where: Places) -> Diagnostic:
    value = show(lost.slot, lost.value)
    message = f"no file sets {lost.slot}, which the plan decided as {value}"
    if not lost.file:
        anywhere = label_of(next(iter(where), ""), "", "", where)  # it is of the bundle as a whole
        return Diagnostic("E1003", "error", message, (anywhere,), lost.reasons)
    key = lost.keys[0] if lost.keys else ""
    labels = (label_of(lost.file, key, f"{joined(lost.keys, 'or')} would set it", where),)
    return Diagnostic(
        "E1003", "error", message, labels, help="compile the spec again, or set it in the spec"
    )
