"""A comparison as text for the terminal, as Markdown for a pull request, and as JSON."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from tunec.compiler.ir.values import plain
from tunec.compiler.review.diff.compare import Comparison, SpecChange
from tunec.compiler.review.diff.effects import Effect, Fate
from tunec.compiler.review.diff.groups import Group
from tunec.compiler.review.diff.intent import FieldChange
from tunec.compiler.review.diff.wording import (
    beside_lines,
    effect_lines,
    fate_lines,
    field_line,
    follow_line,
    group_title,
    slot_lines,
    spec_class,
    spec_title,
    untouched_lines,
)
from tunec.compiler.review.outcome import Needs, Outcome

_SLOT, _VALUES, _NAME = 34, 30, 24


def comparison_text(comparison: Comparison) -> str:
    """Every changed spec as a section; a single line if nothing differs."""
    sections = ["\n".join(_text_spec(each)) for each in comparison.changed if each.is_told]
    sections += [f"{name}: new" for name in comparison.added]
    sections += [f"{name}: gone" for name in comparison.removed]
    sections += [f"{name}: cannot be compared" for name in comparison.unreadable]
    return "\n\n".join(sections) if sections else "nothing changes"


def _text_spec(change: SpecChange) -> Iterator[str]:
    yield f"{spec_title(change)}: {spec_class(change)}"
    if change.intent:
        yield "  intent" if change.beside is None else "  keys"
    for field in change.intent:
        place = f"  ({field.span})" if field.span else ""
        yield f"    {field_line(field)}{place}"
    yield from (f"  {line}" for line in (*untouched_lines(change), *beside_lines(change)))
    for group in change.groups:
        yield from _text_group(group)


def _text_group(group: Group) -> Iterator[str]:
    yield f"  {group_title(group)}"
    for line in fate_lines(group):
        yield f"    {line}"
    for slot, values, reason in slot_lines(group):
        yield f"    {slot:<{_SLOT}} {values:<{_VALUES}} {reason}".rstrip()
    if follows := follow_line(group):
        yield f"    {follows}"
    for name, values in effect_lines(group):
        yield f"    {name:<{_NAME}} {values}"


def comparison_markdown(comparison: Comparison) -> str:
    """The most severe class as a heading, then every changed spec."""
    nothing = "not compared" if comparison.unreadable else "nothing changes"
    parts = [f"## tunec: {comparison.kind or nothing}", *_overview(comparison)]
    parts += ["\n".join(_markdown_spec(each)) for each in comparison.changed if each.is_told]
    parts += [f"### {_code(name)} is new" for name in comparison.added]
    parts += [f"### {_code(name)} is gone" for name in comparison.removed]
    parts += [f"### {_code(name)} cannot be compared" for name in comparison.unreadable]
    return "\n\n".join(parts)


def _overview(comparison: Comparison) -> Iterator[str]:
    """A table of the changes, if there are any."""
    rows = [
        f"| {_code(spec)} | {kind} | {_arrow(cost) or 'unknown'} | "
        f"{_escaped(fits) or 'as before'} |"
        for spec, kind, cost, fits in overview_rows(comparison)
    ]
    if rows:
        head = "| | class | cost of a run | fits |\n| --- | --- | --- | --- |\n"
        yield head + "\n".join(rows)


def _markdown_spec(change: SpecChange) -> Iterator[str]:
    yield f"### {_code(spec_title(change))}: {spec_class(change)}"
    yield ""
    yield from (f"- {_escaped(field_line(field))}" for field in change.intent)
    if change.intent:
        yield ""
    for line in (*untouched_lines(change), *beside_lines(change)):
        yield f"{_escaped(line[:1].upper() + line[1:])}."
    for group in change.groups:
        yield ""
        yield from _markdown_group(group)


def _markdown_group(group: Group) -> Iterator[str]:
    yield f"**{_escaped(group_title(group))}**"
    yield ""
    yield from (f"> {_escaped(line)}" for line in fate_lines(group))
    rows = list(slot_lines(group))
    if rows:
        yield "| decision | old → new | why |"
        yield "| --- | --- | --- |"
    for slot, values, reason in rows:
        yield f"| {_code(slot)} | {_arrow(values)} | {_escaped(reason)} |"
    if follows := follow_line(group):
        yield ""
        yield f"<sub>{_escaped(follows)}</sub>"
    measures = list(effect_lines(group))
    if measures and rows:
        yield ""
    yield from (f"- {name}: {_arrow(values)}" for name, values in measures)


def _arrow(text: str) -> str:
    return _escaped(text).replace("-&gt;", "→")


def _code(text: str) -> str:
    """Text as a Markdown code span that is safe in tables: its backquotes and bars are replaced."""
    return f"`{text.replace('`', chr(39)).replace('|', '¦')}`"


_MENTION: Final = re.compile(r"(?<![\w`])@(?=\w)")


def _escaped(text: str) -> str:
    """Text that Markdown shows literally, in tables too, and that mentions no users."""
    for special, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(special, shown)
    for special in "\\`*_[]|$":
        text = text.replace(special, f"\\{special}")
    return _MENTION.sub("@<!-- -->", text).replace("\n", " ")


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """All differences, cluster by cluster."""
    return {
        "class": comparison.kind,
        "specs": [_spec_data(each) for each in comparison.changed],
        "added": list(comparison.added),
        "removed": list(comparison.removed),
        "unreadable": list(comparison.unreadable),
    }


def _spec_data(change: SpecChange) -> dict[str, Any]:
    return {
        "spec": change.spec,
        **({"was": change.was} if change.was else {}),
        "class": change.kind if change.groups else None,
        "intent": [_field(each) for each in change.intent],
        "clusters": change.clusters,
        "untouched": change.untouched,
        "unplanned": change.unplanned,
        **_beside(change),
        "groups": [_group_data(each) for each in change.groups],
    }


def _beside(change: SpecChange) -> dict[str, Any]:
    """What is left out when existing files are compared; empty for specs."""
    if change.beside is None:
        return {}
    return {"unaccounted": change.beside.unaccounted, "unjudged": list(change.unjudged)}


def _field(change: FieldChange) -> dict[str, Any]:
    place = {"file": change.span.file, "line": change.span.line} if change.span else {}
    return {"path": change.path, "old": change.old, "new": change.new, **place}


def _group_data(group: Group) -> dict[str, Any]:
    return {
        "class": group.kind,
        "where": group.where,
        "fate": group.fate,
        "effects": [_effect(each) for each in group.effects],
    }


def _effect(effect: Effect) -> dict[str, Any]:
    return {
        "cluster": effect.pair.cluster,
        "decisions": {
            each.slot: {
                "old": plain(each.old),
                "new": plain(each.new),
                "reason": each.reason,
                "class": each.meaning.kind,
                "why": each.meaning.why,
            }
            for each in effect.slots
        },
        "old": _needs(effect.old.needs),
        "new": _needs(effect.new.needs),
        "diagnostics": [each.to_json() for each in effect.new.faults],
    }


def _needs(needs: Needs | None) -> dict[str, Any] | None:
    if needs is None:
        return None
    return {
        "required_bytes": needs.required,
        "budget_bytes": needs.budget,
        "headroom_bytes": needs.headroom,
        "host_required_bytes": needs.host_required,
        "step_seconds": needs.step_seconds,
        "tokens_per_second": needs.tokens_per_second,
        "run_cost_dollars": needs.run_cost,
    }


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
