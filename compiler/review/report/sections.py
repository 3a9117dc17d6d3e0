"""The memory, time and decisions sections of a page."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tunec.compiler.analyses.memory.account import Account
from tunec.compiler.analyses.time.account import OFF, TimeAccount
from tunec.compiler.driver import Planned
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.compiler.ir.values import show
from tunec.compiler.review.candidates import Considerations
from tunec.compiler.review.explain import is_set, place_said
from tunec.compiler.review.reasons import Branch, Reasons
from tunec.compiler.review.report.bars import Bar, Chart, Limit, legend, stacked, whole
from tunec.compiler.review.report.html import (
    Cell,
    Child,
    Column,
    Element,
    Row,
    Section,
    details,
    figure,
    table,
    tag,
)
from tunec.schemas.units import format_bytes

_COLOURS: Final = 8
"""How many terms have their own colour; the rest are combined."""
_OTHERS: Final = "the rest"
_MARGIN: Final = "margin: "
_NUMBER: Final = re.compile(r" \d+$")
_NEAR: Final = 0.3
"""Share of a host's budget from which its line is drawn; a far line would make bars too short."""
_SMALLEST: Final = 6
"""How many layouts are shown if none fits."""


def memory_section(plan: Plan, account: Account) -> Section:
    """Every phase of a step against the device's budget, then the host memory of a node."""
    budget = plan.devices.budget
    margin = {f"{_MARGIN}{name}": value for name, value in account.margin.items()}
    peak = {**account.terms, **margin}
    others = {name: terms for name, terms in account.phases.items() if name != account.peak_phase}
    bars = {f"{account.peak_phase}, with margin": peak, **others}
    words = (
        f"A device needs {format_bytes(account.required_bytes)} of {format_bytes(budget)}; the "
        f"peak is in the phase {account.peak_phase}."
    )
    content = (
        tag("p", words),
        *_device(bars, budget, "phase", "memory of a device by phase"),
        tag("h3", "The host"),
        *_host(plan, account),
    )
    return Section("memory", "Memory", content)


def lacking_section(considered: Considerations) -> Section | None:
    """If nothing fits: the layouts that need the least, against the budget."""
    short = [each for each in considered.layouts if each.state == "device memory"]
    if not short:
        return None
    bars = {each.name: dict(each.terms) for each in short[:_SMALLEST]}
    words = (
        f"The smallest layout needs {format_bytes(short[0].required)} of "
        f"{format_bytes(considered.budget)}, with one sample at a time."
    )
    content = _device(bars, considered.budget, "layout", "memory of the smallest layouts")
    return Section("memory", "Memory", (tag("p", words), *content))


def _device(
    bars: Mapping[str, Mapping[str, int]], budget: int, what: str, title: str
) -> Iterator[Child]:
    colours, shown = coloured(bars.values()), _highest_of_each(bars)
    described = ", ".join(f"{name} {format_bytes(sum(t.values()))}" for name, t in shown.items())
    chart = Chart(title, f"budget {format_bytes(budget)}; {described}", format_bytes, colours)
    drawn = [
        Bar(name, in_colours(terms, colours), emphasized=at == 0)
        for at, (name, terms) in enumerate(shown.items())
    ]
    first = next(iter(bars.values()))
    amounts = {name: format_bytes(value) for name, value in in_colours(first, colours).items()}
    yield figure(
        stacked(chart, drawn, Limit("budget", budget)),
        f"Bytes of a device by {what}, stacked by term. Amounts below are of the first bar.",
        legend(_present(colours, drawn), amounts),
    )
    yield details("As a table", _table(f"Memory by term and {what}", bars))


def _highest_of_each(bars: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    """The highest of the phases that differ only in their number; the table has all phases."""
    kinds: dict[str, list[str]] = {}
    for name in bars:
        kinds.setdefault(_NUMBER.sub("", name), []).append(name)
    found: dict[str, Mapping[str, int]] = {}
    for kind, names in kinds.items():
        highest = max(names, key=lambda name: sum(bars[name].values()))
        told = f"{kind}, the highest of {len(names)}" if len(names) > 1 else highest
        found[told] = bars[highest]
    return found


def _host(plan: Plan, account: Account) -> Iterator[Child]:
    host, budget = account.host, plan.devices.host_budget
    of = f" of {format_bytes(budget)}" if budget is not None else ", and its size is unknown"
    if account.workload.shares_host_memory:
        of = " of the devices' own memory, where it is counted with theirs"
    colours = coloured(host.phases.values())
    bars = [
        Bar(name, in_colours(terms, colours), emphasized=name == host.peak_phase)
        for name, terms in host.phases.items()
    ]
    yield tag("p", f"A node's host needs {format_bytes(host.peak_bytes)}{of}.")
    described = ", ".join(f"{bar.name} {format_bytes(bar.total)}" for bar in bars)
    chart = Chart("memory of a node's host", described, format_bytes, colours)
    is_far = budget is not None and host.peak_bytes < _NEAR * budget
    limit = Limit("budget", budget) if budget is not None and not is_far else None
    amounts = {n: format_bytes(v) for n, v in in_colours(host.terms, colours).items()}
    outside = " The budget lies far to the right of what is drawn." if is_far else ""
    yield figure(
        stacked(chart, bars, limit),
        f"Bytes of a node's RAM by phase. Amounts below are of {host.peak_phase}.{outside}",
        legend(_present(colours, bars), amounts),
    )
    yield details("As a table", _table("Host memory by term and phase", host.phases))


def coloured(bars: Iterable[Mapping[str, int]]) -> dict[str, str]:
    """A colour for each of the largest terms, the same in every bar; the rest share one colour."""
    most: dict[str, int] = {}
    for terms in bars:
        for name, value in terms.items():
            if not name.startswith(_MARGIN):
                most[name] = max(value, most.get(name, 0))
    ranked = sorted(most, key=lambda name: (-most[name], name))
    found = {name: f"c{at + 1}" for at, name in enumerate(ranked[:_COLOURS])}
    return {**found, _OTHERS: "c0", "margin": "cm"}


def in_colours(terms: Mapping[str, int], colours: Mapping[str, str]) -> dict[str, float]:
    """Terms in the order of their colours: coloured terms, then the rest, then the margin."""
    margin = sum(value for name, value in terms.items() if name.startswith(_MARGIN))
    named = {name: float(terms[name]) for name in colours if terms.get(name)}
    rest = sum(terms.values()) - margin - sum(named.values())
    ends = {_OTHERS: float(rest), "margin": float(margin)}
    return {**named, **{name: value for name, value in ends.items() if value}}


def _present(colours: Mapping[str, str], bars: Sequence[Bar]) -> dict[str, str]:
    return {n: c for n, c in colours.items() if any(n in bar.parts for bar in bars)}


def _table(caption: str, bars: Mapping[str, Mapping[str, int]]) -> Element:
    names = list(dict.fromkeys(name for terms in bars.values() for name in terms))
    columns = [Column("term"), *(Column(name, is_number=True) for name in bars)]
    rows: list[Row] = [
        [name, *(_amount(terms.get(name, 0)) for terms in bars.values())] for name in names
    ]
    total: Row = ["total", *(_amount(sum(t.values())) for t in bars.values())]
    return table(caption, columns, [*rows, total])


def _amount(value: int) -> Cell:
    return Cell(format_bytes(value) if value else "—", float(value))


def time_section(time: TimeAccount, micro_batches: int, doubt: str | None = None) -> Section:
    """The terms of a step, one after another."""
    terms = {name: seconds for name, seconds in time.terms.items() if seconds}
    step = time.step_seconds
    words = (
        f"An optimizer step of {time.samples:,} samples takes {seconds_text(step)}: "
        f"{rate_text(time)}.{_summed(micro_batches)} The account ranks layouts: "
        f"{OFF}.{f' In doubt: {doubt}.' if doubt else ''}"
    )
    drawn = _large(terms)
    described = ", ".join(f"{name} {seconds_text(value)}" for name, value in drawn.items())
    colours = {name: "c0" if name == _OTHERS else f"c{at}" for at, name in enumerate(drawn, 1)}
    chart = Chart("one step", described, seconds_text, colours)
    amounts = {n: f"{seconds_text(s)}, {s / step:.1%}" for n, s in drawn.items()}
    rows = [(n, seconds_text(s), f"{s / step:.1%}") for n, s in terms.items()]
    columns = (Column("term"), Column("time", is_number=True), Column("share", is_number=True))
    content = (
        tag("p", words),
        figure(
            whole(chart, drawn),
            "Seconds of a step, one term after the other. The table has the small ones too.",
            legend(colours, amounts),
        ),
        details("As a table", table("Time of a step by term", columns, rows)),
    )
    return Section("time", "Time", content)


def _large(terms: Mapping[str, float]) -> dict[str, float]:
    """The terms large enough to be seen in a bar, in order, with the small ones combined."""
    least = _SEEN * sum(terms.values())
    ranked = sorted((value for value in terms.values() if value >= least), reverse=True)
    least = ranked[_COLOURS - 1] if len(ranked) > _COLOURS else least
    found = {name: value for name, value in terms.items() if value >= least}
    rest = sum(terms.values()) - sum(found.values())
    return {**found, _OTHERS: rest} if len(found) < len(terms) else found


_SEEN: Final = 0.01
"""Share of a step from which a term has its own colour."""


def _summed(micro_batches: int) -> str:
    if micro_batches == 1:
        return ""
    return f" What occurs in each of its {micro_batches:,} micro batches is summed."


def rate_text(time: TimeAccount) -> str:
    """The speed in tokens and samples per second."""
    samples = f"{time.samples_per_second:.3g} samples/s"
    tokens = time.tokens_per_second
    return f"{tokens:,.0f} tokens/s, {samples}" if tokens else samples


def seconds_text(seconds: float) -> str:
    """`4.22 s`, `38.0 ms`, `0 s`."""
    if seconds == 0:
        return "0 s"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * size:
            return f"{seconds / size:#.3g}".rstrip(".") + f" {unit}"
    return f"{seconds * 1e6:#.3g}".rstrip(".") + " µs"


_DEEPEST: Final = 2
"""How many levels of slots are shown inside a slot; deeper ones link to the slot's own entry."""


def decisions_section(planned: Planned) -> Section:
    """Every decision, with its reason and what it rests on."""
    reasons = Reasons(planned, _DEEPEST)
    groups = [each for each in (_group(planned, reasons, name) for name in GROUPS) if each]
    words = (
        "Each value with who decided it, why, and what it rests on; the name of a slot leads to "
        "its own place."
    )
    buttons = tag(
        "p",
        tag("button", "open all", type="button", data_open="all"),
        tag("button", "close all", type="button", data_open="none"),
        tag("label", "find ", tag("input", type="search", data_find="decisions")),
        tag("span", role="status", class_="found"),
        class_="controls script-only",
    )
    content = (*_set_by_user(planned), tag("h3", "All decisions"), tag("p", words), buttons)
    content = (*content, tag("div", groups, class_="tree"))
    return Section("decisions", "Decisions", content)


def _set_by_user(planned: Planned) -> Iterator[Child]:
    """The values that the user set, separate from those that follow from them."""
    winners = [each for each in planned.ledger.winners() if is_set(each, planned)]
    rows: list[Row] = [
        (
            tag("a", tag("code", each.slot), href=f"#{_anchor(each.slot)}"),
            show(each.slot, each.value),
            place_said(each, planned),
        )
        for each in winners
    ]
    if rows:
        columns = (Column("slot"), Column("value"), Column("said"))
        yield tag("h3", "You set")
        yield table("Values that you set; all others were decided", columns, rows)


def _group(planned: Planned, reasons: Reasons, group: str) -> Element | None:
    slots = [
        path
        for path, slot in SLOTS.items()
        if slot.group == group and planned.ledger.winner(path) is not None
    ]
    if not slots:
        return None
    heading = tag(
        "h3", f"{group} ", tag("span", f"{len(slots)} slot{'s' * (len(slots) > 1)}", class_="quiet")
    )
    return details(heading, [_slot(planned, reasons, path) for path in slots])


def _slot(planned: Planned, reasons: Reasons, path: str) -> Element:
    branch = reasons.of(path)
    winner = planned.ledger.winner(path)
    value = show(path, winner.value) if winner else ""
    summary: list[Element | str] = [tag("code", path), " = ", tag("strong", value)]
    below = tag("ul", _items(branch))
    return tag(
        "details",
        tag("summary", summary),
        tag("p", SLOTS[path].doc, class_="quiet"),
        below,
        id=_anchor(path),
        class_="slot",
    )


def _anchor(path: str) -> str:
    return f"slot-{path}"


def _items(branch: Branch) -> Iterator[Element]:
    for each in branch.below:
        below = tag("ul", _items(each)) if each.below else None
        yield tag("li", _line(each), below, class_=f"is-{each.kind}")


def _line(branch: Branch) -> list[Element | str]:
    if not branch.slot:
        return [tag("span", branch.text)]
    rest = branch.text.removeprefix(branch.slot)
    return [tag("a", tag("code", branch.slot), href=f"#{_anchor(branch.slot)}"), tag("span", rest)]
