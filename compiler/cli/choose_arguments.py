"""The arguments of `tunec choose` and their meaning: limits, prices, regions, sweeps."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct

from tunec.compiler.choose.options import Asking
from tunec.compiler.choose.sweep import NotASweep, Sweep, combinations, read_sweep
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import did_you_mean, joined, nearest
from tunec.compiler.frontend.document import load_document
from tunec.compiler.frontend.faults import error
from tunec.schemas.prices.book import OWNER, Wanted, providers, regions, shipped
from tunec.schemas.prices.price_list import PriceList
from tunec.schemas.source import COMMAND_LINE, Span
from tunec.schemas.units import NotAQuantity, parse_seconds

_Result = TypeVar("_Result")

_TIME: Final = "write it as 12h, 90min or 2d"
_MONEY: Final = "write dollars as a number, such as 200 or 12.50"
Combination = tuple[tuple[str, str], ...]
"""Paths of the spec, each with one of its swept values."""


class Read(Struct, frozen=True):
    """The parsed arguments, or their faults."""

    asking: Asking
    combinations: tuple[Combination, ...]
    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, str]


class _Line(Struct):
    """The arguments as lines of a text, into which faults point."""

    lines: list[str]
    faults: list[Diagnostic]
    sources: dict[str, str]

    def place(self, flag: str, text: str) -> Span:
        """The place of a value, as the next line."""
        self.lines.append(f"{flag} {text}")
        at, start = len(self.lines), len(flag) + 2
        return Span(COMMAND_LINE, at, start, at, start + max(1, len(text)))

    def refuse(self, code: str, message: str, span: Span, remedy: str | None) -> None:
        """Report a fault of a value."""
        self.faults.append(error(code, message, span, help=remedy))


def read(options: Namespace) -> Read:
    """Read every argument of a choice, with all faults at once."""
    line = _Line([], [], {})
    own = tuple(_lists(options.prices, line))
    known = (*own, *shipped())
    wanted = Wanted(
        "spot" if options.spot else "on_demand",
        tuple(_named(options.providers, "--provider", (*providers(known), OWNER), line)),
        tuple(_regions(options.regions, regions(known), line)),
    )
    within = _value(options.within, "--within", _seconds, line)
    budget = _value(options.budget, "--budget", _dollars, line)
    asking = Asking(options.by, wanted, own, within, budget)
    found = _combinations(options.sweeps, line)
    sources = {COMMAND_LINE: "\n".join(line.lines), **line.sources}
    return Read(asking, found, tuple(line.faults), sources)


def without_length(options: Namespace) -> tuple[Diagnostic, Mapping[str, str]]:
    """The fault of a limit if the run's length is unknown."""
    line = _Line([], [], {})
    flag, text = ("--within", options.within) if options.within else ("--budget", options.budget)
    span = line.place(flag, text)
    remedy = "say how much there is, such as `--set data.samples=10k` or `--set train.steps=500`"
    message = f"`{flag}` needs the length of the run, and its number of steps is not known"
    return error("E0302", message, span, help=remedy), {COMMAND_LINE: line.lines[0]}


def _lists(files: Sequence[str], line: _Line) -> Iterator[PriceList]:
    for name in files:
        document = load_document(Path(name), PriceList)
        line.faults += document.diagnostics
        line.sources |= document.sources
        if document.value is not None:
            yield document.value


def _named(given: Sequence[str], flag: str, known: Sequence[str], line: _Line) -> Iterator[str]:
    for name in given:
        span = line.place(flag, name)
        if name in known:
            yield name
            continue
        remedy = did_you_mean(nearest(name, known)) or f"there are {joined(known)}"
        line.refuse("E0304", f"no list of prices is of a provider `{name}`", span, remedy)


def _regions(given: Sequence[str], known: Sequence[str], line: _Line) -> Iterator[str]:
    """The regions that match patterns."""
    for pattern in given:
        span = line.place("--region", pattern)
        found = [each for each in known if fnmatchcase(each, pattern)]
        yield from found
        if not found:
            near = did_you_mean(nearest(pattern, known))
            remedy = near or "give a provider's name of a region, or a pattern such as 'eu*'"
            line.refuse("E0305", f"no list has prices of a region `{pattern}`", span, remedy)


def _value(
    text: str | None, flag: str, parse: Callable[[str], _Result], line: _Line
) -> _Result | None:
    if text is None:
        return None
    span = line.place(flag, text)
    try:
        return parse(text)
    except NotAQuantity as fault:
        remedy = _TIME if flag == "--within" else _MONEY
        line.refuse("E0306", f"`{flag}`: {fault}", span, remedy)
        return None


def _seconds(text: str) -> int:
    found: int = parse_seconds(text)
    if found < 1:
        raise NotAQuantity("time", text, "is no time at all")
    return found


def _dollars(text: str) -> float:
    try:
        found = float(text.removeprefix("$"))
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise NotAQuantity("amount", text, "is not an amount of dollars")
    return found


def _combinations(given: Sequence[str], line: _Line) -> tuple[Combination, ...]:
    sweeps: list[Sweep] = []
    span = None
    for text in given:
        span = line.place("--sweep", text)
        try:
            sweeps.append(read_sweep(text))
        except NotASweep as fault:
            line.refuse("E0306", str(fault), span, fault.remedy)
    if line.faults or span is None:
        return ((),)
    try:
        return combinations(sweeps)
    except NotASweep as fault:
        line.refuse("E0306", str(fault), span, fault.remedy)
        return ((),)
