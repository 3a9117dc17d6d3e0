"""Phrases of a comparison that the text and Markdown formats share."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.values import show
from tunec.compiler.review.diff.compare import SpecChange
from tunec.compiler.review.diff.groups import Group
from tunec.compiler.review.diff.intent import FieldChange
from tunec.compiler.review.outcome import Outcome
from tunec.schemas.units import format_bytes


def field_line(change: FieldChange) -> str:
    """`budget.gpu_memory: 72GiB -> 36GiB`."""
    return f"{change.path}: {change.old_text} -> {change.new_text}"


def spec_title(change: SpecChange) -> str:
    """The spec's name, with its old name if it was renamed."""
    return f"{change.spec} (was {change.was})" if change.was else change.spec


def spec_class(change: SpecChange) -> str:
    """The most severe class, or that there is no effect, or that the effect is unknown."""
    if change.groups:
        return change.kind
    return "effect unknown" if change.unjudged else "no effect"


def beside_lines(change: SpecChange) -> Iterator[str]:
    """What the comparison of existing files leaves out, and why."""
    if change.beside is not None and change.beside.unaccounted:
        yield f"memory and time are not compared: {change.beside.unaccounted}"
    if change.unjudged:
        keys = joined(change.unjudged, "and")
        yield f"not judged: {keys} (no slot stands for it, or it is not clear which value holds)"


def untouched_lines(change: SpecChange) -> Iterator[str]:
    """How many clusters the change leaves as they are, and how many have no plan on either side."""
    if change.untouched:
        what = "no decision changes" if change.unjudged else "nothing changes"
        yield f"{_on(change.untouched, change.clusters)}{what}"
    if change.unplanned:
        why = f": {change.why_unplanned}" if change.why_unplanned else ""
        yield f"{_on(change.unplanned, change.clusters)}no plan, before or after{why}"


def _on(some: int, total: int) -> str:
    if some == total:
        return "" if total == 1 else f"on all {total:,} clusters: "
    return f"on {some:,} of {total:,} clusters: "


def group_title(group: Group) -> str:
    """The group's clusters, its class, and the reasons for the class."""
    whys = (each.meaning.why for each in group.slots if each.meaning.kind == group.kind)
    return f"{group.where}: {group.kind}" + "".join(f"; {why}" for why in dict.fromkeys(whys))


def slot_lines(group: Group) -> Iterator[tuple[str, str, str]]:
    """Each changed slot, its old and new values, and the reason; without slots that only follow."""
    for change in group.slots:
        if not change.follows:
            old, new = group.values(change.slot)
            said = f"{_values(change.slot, old)} -> {_values(change.slot, new)}"
            yield change.slot, said, change.reason


def follow_line(group: Group) -> str:
    """The slots that only follow from other changed slots; empty if there are none."""
    slots = [change.slot for change in group.slots if change.follows]
    return f"together with {joined(slots, 'and')}" if slots else ""


def _values(slot: str, values: Sequence[Any]) -> str:
    if len(values) == 1:
        return show(slot, values[0])
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
        return f"{show(slot, min(values))} to {show(slot, max(values))}"
    return f"{show(slot, values[0])} and {len(values) - 1} more"


def fate_lines(group: Group) -> Iterator[str]:
    """The group's fate if it changed, with the first error if there is no plan any more."""
    if group.fate in ("fits", "not compared"):
        return
    yield group.fate
    faults = group.effects[0].new.faults
    yield from (each.message for each in faults[:1])


def effect_lines(group: Group) -> Iterator[tuple[str, str]]:
    """Memory, speed, batch and cost, each as a range over the group."""
    pairs = [(e.old, e.new) for e in group.effects if e.old.needs and e.new.needs]
    for name, measure in _MEASURES:
        before = [value for old, _ in pairs if (value := measure(old)) is not None]
        after = [value for _, new in pairs if (value := measure(new)) is not None]
        if not before or _range(name, before) == _range(name, after):
            continue
        ratio = "" if name == _HEADROOM else _ratio(before, after)
        yield name, f"{_range(name, before)} -> {_range(name, after)}{ratio}"


_Measure = Callable[[Outcome], float | None]


def _need(field: str) -> _Measure:
    return lambda outcome: getattr(outcome.needs, field) if outcome.needs else None


def _rate_a_sample(outcome: Outcome) -> float | None:
    return float(outcome.values["optimizer.learning_rate"] / outcome.values["batch.global"])


_HEADROOM: Final = "free of the budget"
_MEASURES: Final[tuple[tuple[str, _Measure], ...]] = (
    ("memory of a device", _need("required")),
    (_HEADROOM, _need("headroom")),
    ("memory of a host", _need("host_required")),
    ("seconds a step", _need("step_seconds")),
    ("tokens a second", _need("tokens_per_second")),
    ("effective batch", lambda outcome: outcome.values["batch.global"]),
    ("learning rate a sample", _rate_a_sample),
    ("cost of the run", _need("run_cost")),
)
"""The measures of a comparison. The learning rate per sample of a batch is one since a larger batch
averages out more noise: the rate is usually raised with the batch, linearly (arXiv 1706.02677) or
by its root."""
_IN_BYTES: Final = frozenset({"memory of a device", _HEADROOM, "memory of a host"})


def _range(name: str, values: Sequence[float]) -> str:
    low, high = _amount(name, min(values)), _amount(name, max(values))
    return low if low == high else f"{low} to {high}"


def _amount(name: str, value: float) -> str:
    if name in _IN_BYTES:
        return ("-" if value < 0 else "") + format_bytes(abs(value))
    if name == "cost of the run":
        return f"${value:,.2f}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _ratio(before: Sequence[float], after: Sequence[float]) -> str:
    """` (-12 % to -8 %)`; empty if a value cannot be divided by its old one."""
    if any(value <= 0 for value in before):
        return ""
    shares = [new / old - 1 for old, new in zip(before, after, strict=False)]
    low, high = f"{min(shares):+.0%}", f"{max(shares):+.0%}"
    return f" ({low})" if low == high else f" ({low} to {high})"
