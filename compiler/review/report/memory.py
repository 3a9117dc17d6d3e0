"""The section about memory: terms by phase against the budget, and the host."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tunec.compiler.analyses.memory.account import Account
from tunec.compiler.ir.plan import Plan
from tunec.compiler.review.candidates import Considerations
from tunec.compiler.review.report.bars import Bar, Chart, Limit, legend, stacked
from tunec.compiler.review.report.html import Child, Element, tag
from tunec.compiler.review.report.page import Section, figure, folded
from tunec.compiler.review.report.tables import Cell, Column, Row, table
from tunec.schemas.units import format_bytes

_COLOURS: Final = 8
"""Terms with a colour of their own; the rest are told together."""
_OTHERS: Final = "the rest"
_MARGIN: Final = "margin: "
_SMALLEST: Final = 6
"""Layouts that are shown where none fits."""


def memory_section(plan: Plan, account: Account) -> Section:
    """Every phase of a step against what a device may give; then a node's host."""
    budget = plan.devices.budget
    margin = {f"{_MARGIN}{name}": value for name, value in account.margin.items()}
    peak = {**account.terms, **margin}
    bars = {f"{account.peak_phase}, with margin": peak, **account.phases}
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
    """Where nothing fits: the layouts that lack least, against the budget."""
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
    colours = coloured(bars.values())
    described = ", ".join(f"{name} {format_bytes(sum(t.values()))}" for name, t in bars.items())
    chart = Chart(title, f"budget {format_bytes(budget)}; {described}", format_bytes, colours)
    drawn = [
        Bar(name, _in_colours(terms, colours), emphasized=at == 0)
        for at, (name, terms) in enumerate(bars.items())
    ]
    first = next(iter(bars.values()))
    amounts = {name: format_bytes(value) for name, value in _in_colours(first, colours).items()}
    yield figure(
        stacked(chart, drawn, Limit("budget", budget)),
        f"Bytes of a device by {what}, stacked by term. Amounts below are of the first bar.",
        legend(_present(colours, drawn), amounts),
    )
    yield folded("As a table", _table(f"Memory by term and {what}", bars))


def _host(plan: Plan, account: Account) -> Iterator[Child]:
    host, budget = account.host, plan.devices.host_budget
    of = f" of {format_bytes(budget)}" if budget is not None else ", and its size is unknown"
    if account.workload.shares_host_memory:
        of = " of the devices' own memory, where it is counted with theirs"
    colours = coloured(host.phases.values())
    bars = [
        Bar(name, _in_colours(terms, colours), emphasized=name == host.peak_phase)
        for name, terms in host.phases.items()
    ]
    yield tag("p", f"A node's host needs {format_bytes(host.peak_bytes)}{of}.")
    described = ", ".join(f"{bar.name} {format_bytes(bar.total)}" for bar in bars)
    chart = Chart("memory of a node's host", described, format_bytes, colours)
    limit = Limit("budget", budget) if budget is not None else None
    amounts = {n: format_bytes(v) for n, v in _in_colours(host.terms, colours).items()}
    yield figure(
        stacked(chart, bars, limit),
        f"Bytes of a node's RAM by phase. Amounts below are of {host.peak_phase}.",
        legend(_present(colours, bars), amounts),
    )
    yield folded("As a table", _table("Host memory by term and phase", host.phases))


def coloured(bars: Iterable[Mapping[str, int]]) -> dict[str, str]:
    """A colour for each of the largest terms, the same in every bar; the rest share one."""
    most: dict[str, int] = {}
    for terms in bars:
        for name, value in terms.items():
            if not name.startswith(_MARGIN):
                most[name] = max(value, most.get(name, 0))
    ranked = sorted(most, key=lambda name: (-most[name], name))
    found = {name: f"c{at + 1}" for at, name in enumerate(ranked[:_COLOURS])}
    return {**found, _OTHERS: "c0", "margin": "cm"}


def _in_colours(terms: Mapping[str, int], colours: Mapping[str, str]) -> dict[str, float]:
    """Terms in the order of their colours: first what has one, then the rest, then the margin."""
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
