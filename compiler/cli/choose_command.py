"""`tunec choose`: one spec on many clusters, by cost, time or energy."""

import shlex
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from tunec.compiler.choose.grounds import Ground, Grounds, grounds, options
from tunec.compiler.choose.options import Asking, has_length
from tunec.compiler.choose.ranking import result_of
from tunec.compiler.choose.screen import choice_text
from tunec.compiler.choose.sweep import NotASweep, Sweep, combinations, read_sweep
from tunec.compiler.cli.inputs import asked_targets
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session, is_colored
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import did_you_mean, joined, nearest
from tunec.compiler.frontend.document import load_document
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.load import Loaded, load_spec
from tunec.compiler.requirements import Asked
from tunec.compiler.review.screen.pen import Pen
from tunec.compiler.writing import write_all
from tunec.schemas.choice import Choice, Option, Result
from tunec.schemas.hardware.catalogue import UnknownName, cluster
from tunec.schemas.prices.book import OWNER, PriceRequest, providers, regions, shipped
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
    wanted = PriceRequest(
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


_STDOUT: Final = "-"
Said = tuple[Sequence[Diagnostic], Mapping[str, str]]
"""Diagnostics, and the texts that they point into."""


def run(options: Namespace, session: Session) -> int:
    """Plan the spec on every cluster, and print the results."""
    if options.spec is None:
        taken = ": --hardware takes every word behind it" if options.hardware else ""
        raise Misuse(f"name the spec first, `tunec choose SPEC ...`{taken}")
    asked = read(options)
    found = grounds(options.hardware, lambda hardware: _loaded(options, session, hardware))
    settled = [_settled(found, each) for each in asked.combinations]
    faults = [*_faults(found), *(one for each in settled for one in _faults(each, found))]
    broken = bool(asked.diagnostics) or not all(each.grounds for each in (found, *settled))
    if broken:
        return _refuse([(asked.diagnostics, asked.sources), *faults], session)
    for diagnostics, sources in faults:
        session.diagnose(diagnostics, sources)
    tried = [_tried(each, asked, options, session) for each in settled]
    limited = asked.asking.within is not None or asked.asking.budget is not None
    if limited and not any(has_length(each) for each in tried) and any(e.fits for e in tried[0]):
        fault, sources = without_length(options)
        return session.refuse((fault,), sources)
    results = tuple(
        result_of(each, asked.asking, dict(values))
        for each, values in zip(tried, asked.combinations, strict=True)
    )
    return _shown(_choice(found, options, asked, results, faults), asked, options, session)


def _loaded(options: Namespace, session: Session, hardware: str) -> Loaded:
    return load_spec(
        Path(options.spec),
        overrides=options.overrides,
        hardware=hardware,
        targets=session.registry.names(),
        allow_outside=options.allow_outside,
    )


def _settled(found: Grounds, values: Combination) -> Grounds:
    """The clusters for one combination of swept values."""
    return found.settled([f"{path}={value}" for path, value in values])


def _faults(found: Grounds, before: Grounds | None = None) -> list[Said]:
    """Faults of a spec, unless an earlier combination had them."""
    known = {d for said, _ in (before.said if before else ()) for d in said}
    return [([d for d in said if d not in known], sources) for said, sources in found.said]


def _refuse(said: Sequence[Said], session: Session) -> int:
    """Report every fault, in whichever text it is."""
    told: dict[Diagnostic, None] = {}
    for diagnostics, sources in said:
        fresh = [each for each in diagnostics if each not in told]
        told |= dict.fromkeys(fresh)
        session.diagnose(fresh, sources)
    if session.format == "json":
        session.json({"diagnostics": [each.to_json() for each in told]})
    return INPUT


def _tried(found: Grounds, asked: Read, given: Namespace, session: Session) -> list[Option]:
    def targets(loaded: Loaded) -> Sequence[Asked]:
        return asked_targets(given.targets, loaded, session)

    return [one for each in found.grounds for one in options(each, asked.asking, targets)]


def _choice(
    found: Grounds, given: Namespace, asked: Read, results: tuple[Result, ...], said: Sequence[Said]
) -> Choice:
    asking = asked.asking
    return Choice(
        spec=_name(found.grounds[0]),
        everywhere=not given.hardware,
        by=asking.by,
        market=asking.wanted.market,
        within_seconds=asking.within,
        budget_dollars=asking.budget,
        providers=asking.wanted.providers,
        regions=asking.wanted.regions,
        results=results,
        diagnostics=tuple(d.to_json() for diagnostics, _ in said for d in diagnostics),
    )


def _name(ground: Ground) -> str:
    return ground.loaded.spec.name if ground.loaded.spec else ""


def _is_catalogued(name: str) -> bool:
    try:
        cluster(name)
    except UnknownName:
        return False
    return True


def _tell_next(choice: Choice, spec: str, session: Session) -> None:
    """Name the command that shows the best option's plan, if one cluster of the catalogue is it."""
    best = choice.results[0].best if len(choice.results) == 1 else None
    if best is not None and _is_catalogued(best):
        session.note(f"next: tunec plan {shlex.quote(spec)} --hardware {best}")


def _shown(choice: Choice, asked: Read, options: Namespace, session: Session) -> int:
    """Print the choice, and write its page if one is requested."""
    if options.output is not None:
        from tunec.compiler.choose.page import choice_page

        text = choice_page(choice, asked.asking)
        if options.output == _STDOUT:
            session.result(text)
        else:
            write_all({Path(options.output): text})
    found: dict[str, Any] = choice.model_dump(mode="json")
    if session.format == "json":
        session.json(found)
    elif options.output != _STDOUT:
        pen = Pen(is_colored(session.stdout), session.draws)
        session.result(choice_text(choice, asked.asking, pen, every=options.all))
        if options.output is None:
            _tell_next(choice, options.spec, session)
    return OK if any(each.best for each in choice.results) else INPUT
