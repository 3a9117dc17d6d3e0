"""The first things a reviewer looks for: what no longer fits, what newly fits, and the cost."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tunec.compiler.review.diff.compare import Comparison
from tunec.compiler.review.diff.effects import Effect, Fate
from tunec.compiler.review.outcome import Outcome

_NAMED: Final = 3
"""How many clusters are listed before the rest is only counted."""


def overview_rows(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    """A row for each reported change: name, class, cost, and the clusters whose fit changes."""
    for change in comparison.changed:
        if change.groups:
            effects = [effect for group in change.groups for effect in group.effects]
            yield change.spec, change.kind, _cost(effects), "; ".join(_fates(effects))


def _fates(effects: Sequence[Effect]) -> Iterator[str]:
    fates: tuple[Fate, ...] = ("no longer fits", "fits now")
    for fate in fates:
        clusters = [each.pair.cluster for each in effects if each.fate == fate]
        if clusters:
            more = f" and {len(clusters) - _NAMED} more" if len(clusters) > _NAMED else ""
            yield f"{fate} {', '.join(clusters[:_NAMED])}{more}"


def _cost(effects: Iterable[Effect]) -> str:
    """Dollars of the whole run if prices are known, else the device hours of the run."""
    pairs = [(each.old, each.new) for each in effects if each.old.needs and each.new.needs]
    for measure, unit in ((_dollars, "${:,.2f}"), (_device_hours, "{:,.1f} device hours")):
        every = [(measure(old), measure(new)) for old, new in pairs]
        known = [(old, new) for old, new in every if old is not None and new is not None]
        if known and len(known) == len(pairs):
            return _change(sum(old for old, _ in known), sum(new for _, new in known), unit)
    return ""


def _change(old: float, new: float, unit: str) -> str:
    if unit.format(old) == unit.format(new):
        return f"{unit.format(new)}, as before"
    share = f" ({new / old - 1:+.0%})" if old > 0 else ""
    return f"{unit.format(old)} -> {unit.format(new)}{share}"


def _dollars(outcome: Outcome) -> float | None:
    return outcome.needs.run_cost if outcome.needs is not None else None


def _device_hours(outcome: Outcome) -> float | None:
    """Hours of a run summed over its devices; None if the number of steps is unknown."""
    values = outcome.values
    steps = values.get("schedule.steps") or values.get("schedule.estimated_steps")
    if outcome.needs is None or steps is None:
        return None
    devices = values["parallel.world"] or 1
    return float(steps * outcome.needs.step_seconds * devices / 3600)
