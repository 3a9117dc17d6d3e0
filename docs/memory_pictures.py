"""Pictures of the memory account for the guide, drawn by the charts of the report.

Each picture is a separate file, so its style is inside, and it has light colours on any page.
"""

from collections.abc import Mapping
from typing import Final

from docs.readme import ROOT

from tunec.compiler.analyses.memory.account import Account
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.ir.plan import Plan
from tunec.compiler.review.report.bars import Bar, Chart, Limit, stacked
from tunec.compiler.review.report.html import Element, render, tag
from tunec.compiler.review.report.sections import coloured, in_colours
from tunec.schemas.units import format_bytes

_SPEC: Final = ROOT / "examples/five-lines/spec.yaml"
_WIDTH: Final = 760
_LEGEND: Final = 22
"""Height of a line of the legend in pixels."""
_COLUMNS: Final = 3
_ALIKE: Final = (
    "hardware=a100-40g-x8",
    "pin.batch.micro=1",
    "pin.activation_checkpointing.mode=layer",
)
"""The settings that the three compared methods share."""
_STYLE: Final = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #16202c; }
.grid { stroke: #ccd3db; } .tick, .row-amount { fill: #4c5968; }
.limit { stroke: #a3201b; stroke-width: 2; stroke-dasharray: 6 3; }
text.limit-name { fill: #a3201b; font-weight: 600; } .strong { font-weight: 600; }
.part { stroke: #fff; stroke-width: 1.5; } .part.thin { stroke: none; }
.in-bar { font-size: 12px; fill: #10161d; } text.on-c1 { fill: #fff; }
.c1 { fill: #0072b2; } .c2 { fill: #e69f00; } .c3 { fill: #009e73; } .c4 { fill: #cc79a7; }
.c5 { fill: #56b4e9; } .c6 { fill: #d55e00; } .c7 { fill: #f0e442; } .c8 { fill: #a6a6a6; }
.c0 { fill: #c9c2b0; } .cm, .part.cm { fill: #e8eaed; stroke: #5b6673; stroke-width: 1; }
"""

Terms = Mapping[str, int]


def phases() -> str:
    """The memory that is alive in each phase of a step, for the spec of five lines."""
    chosen, account = _planned()
    others = {name: terms for name, terms in account.phases.items() if name != account.peak_phase}
    bars = {f"{account.peak_phase}, with margin": _peak(account), **others}
    return _drawn("memory of a device by phase", bars, chosen.devices.budget)


def methods() -> str:
    """The peaks of one model trained by three methods on the same devices, one sample at a time."""
    bars: dict[str, Terms] = {}
    for method in ("full", "lora", "qlora"):
        chosen, account = _planned(f"method={method}", *_ALIKE)
        bars[f"{method}, ZeRO {chosen.zero.stage}: {account.peak_phase}"] = _peak(account)
    return _drawn("peak of a device by method", bars, chosen.devices.budget)


def _planned(*overrides: str) -> tuple[Plan, Account]:
    found = plan(load_spec(_SPEC, overrides=overrides))
    if found.plan is None or found.memory is None:
        raise ValueError(found.diagnostics)
    return found.plan, found.memory


def _peak(account: Account) -> Terms:
    margin = {f"margin: {name}": value for name, value in account.margin.items()}
    return {**account.terms, **margin}


def _drawn(title: str, bars: Mapping[str, Terms], budget: int) -> str:
    colours = coloured(bars.values())
    drawn = [
        Bar(name, in_colours(terms, colours), emphasized=at == 0)
        for at, (name, terms) in enumerate(bars.items())
    ]
    told = ", ".join(f"{bar.name} {format_bytes(bar.total)}" for bar in drawn)
    chart = Chart(title, f"budget {format_bytes(budget)}; {told}", format_bytes, colours)
    picture = stacked(chart, drawn, Limit("budget", budget))
    used = {name: colours[name] for name in colours if any(name in bar.parts for bar in drawn)}
    return _file(picture, used, f"{title}: {chart.description}")


def _file(picture: Element, colours: Mapping[str, str], described: str) -> str:
    """The chart on white, with its legend below, as the text of an SVG file."""
    top = 12 + float(dict(picture.attributes)["height"])
    height = round(top + _LEGEND * -(-len(colours) // _COLUMNS) + 12)
    keys = [_key(at, name, colour, top) for at, (name, colour) in enumerate(colours.items())]
    whole = tag(
        "svg",
        tag("title", described),
        tag("style", _STYLE),
        tag("rect", width="100%", height="100%", fill="#fff"),
        tag("svg", *picture.children, x=16, y=8, width=_WIDTH - 32, height=round(top)),
        keys,
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        width=_WIDTH,
        height=height,
        viewBox=f"0 0 {_WIDTH} {height}",
    )
    return render(whole) + "\n"


def _key(at: int, name: str, colour: str, top: float) -> Element:
    x = 16 + at % _COLUMNS * ((_WIDTH - 32) // _COLUMNS)
    y = round(top + _LEGEND * (at // _COLUMNS) + 8)
    box = tag("rect", x=x, y=y, width=14, height=14, class_=f"part {colour}")
    return tag("g", box, tag("text", name, x=x + 20, y=y + 12))
