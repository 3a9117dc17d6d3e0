"""The page of a choice: a plot of cost against time, a row for each option, and price sources."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tunec.compiler.analyses.time.account import MARGIN, OFF
from tunec.compiler.choose.options import Asking, has_length
from tunec.compiler.choose.ranking import front, kept, placed
from tunec.compiler.choose.screen import letters
from tunec.compiler.choose.wording import (
    FULL_SAMPLES,
    amounts,
    cells,
    columns,
    dates,
    dollars,
    heading,
    is_at_most,
    limits,
    verdict,
)
from tunec.compiler.review.report.html import (
    Cell,
    Child,
    Column,
    Element,
    Frame,
    Section,
    figure,
    page,
    spanning,
    table,
    tag,
)
from tunec.compiler.review.report.html import Row as TableRow
from tunec.compiler.review.report.scatter import Point, mark, scatter
from tunec.compiler.review.screen.screen import duration
from tunec.compiler.version import __version__
from tunec.schemas.choice import Choice, Option, Result

_FEWEST: Final = 2
"""The fewest points of a plot."""
_HOUR: Final = 3600


class _Words(NamedTuple):
    """The meaning of a plot's marks and labels."""

    star: str
    dot: str
    labels: str


_ONE: Final = _Words(
    "on the front: nothing is both cheaper and faster",
    "something is both cheaper and faster",
    "Letters are those of the table.",
)
_SEVERAL: Final = _Words(
    "comes first under its combination",
    "on the front of its combination",
    "Numbers are those of the table.",
)


def choice_page(choice: Choice, asking: Asking) -> str:
    """The whole page of a choice; for a sweep, with the best option for each combination."""
    if len(choice.results) > 1:
        sections = (*_swept(choice.results), *_sources(choice))
        left = sum(bool(each.best) for each in choice.results)
        said = f"something is left under {left} of {len(choice.results)} combinations"
        return page(_frame(choice, said, fits=left > 0), sections)
    result = choice.results[0]
    sections = (*_options(result), *_left_out(result, asking), *_sources(choice))
    return page(_frame(choice, verdict(result, asking), fits=result.best is not None), sections)


def _frame(choice: Choice, said: str, *, fits: bool) -> Frame:
    tried = len(choice.results[0].options)
    facts = [("clusters tried", f"{tried:,}")]
    if len(choice.results) > 1:
        facts.append(("combinations", f"{len(choice.results):,}"))
    else:
        facts.append(("clusters left", f"{len(kept(choice.results[0])):,}"))
    facts += [
        (name, ", ".join(values))
        for name, values in (("providers", choice.providers), ("regions", choice.regions))
        if values
    ]
    return Frame(choice.spec, heading(choice), said, fits, facts, f"tunec {__version__}")


def _options(result: Result) -> Iterator[Section]:
    left = kept(result)
    if not left:
        return
    whole = has_length(left)
    named = letters(left)
    points = [
        _point(named.get(each.cluster, ""), each, seconds, cost)
        for seconds, cost, each in placed(left, whole=whole)
    ]
    rows = [
        (each.cluster, named.get(each.cluster, "—"), *_cells(each, whole=whole)) for each in left
    ]
    (name, _), *more = columns(whole=whole)
    heads = [Column(name), Column("on the front"), *(Column(n, is_number=i) for n, i in more)]
    yield Section(
        "options",
        "What is left",
        (
            _plot(points, _ONE, whole=whole),
            table("Clusters that are left", heads, rows, sortable=True),
        ),
    )


def _point(label: str, option: Option, seconds: float, cost: float) -> Point:
    hint = f"{option.cluster}: {duration(seconds)}, {dollars(cost)}"
    return Point(label, hint, seconds, cost, "chosen" if label else "fits")


def _plot(points: Sequence[Point], words: _Words, *, whole: bool) -> Child:
    """A plot of cost (vertical) against time; a sentence if there are too few points."""
    if len(points) < _FEWEST:
        return tag("p", "Too few of them have a price to be drawn.")
    of = "the run" if whole else "1,000 samples"
    stars = "; ".join(f"{each.label}: {each.hint}" for each in points if each.mark == "chosen")
    drawn = scatter(
        f"cost of {of} by time",
        f"{len(points)} options; {words.star}: {stars}; the table below has all of them",
        points,
        spanning([each.along for each in points], unit=float(_HOUR)),
        say_along=lambda seconds: f"{seconds / _HOUR:,.4g} h",
        say_up=lambda cost: f"${cost:,.4g}",
    )
    keys = (
        tag("li", mark("chosen"), tag("span", words.star)),
        tag("li", mark("fits"), tag("span", words.dot)),
    )
    caption = f"Cost of {of} (dollars, up) by its time (along). {words.labels}"
    return figure(drawn, caption, tag("ul", keys, class_="legend"))


def _cells(option: Option, *, whole: bool) -> Iterator[Cell | str]:
    """An option's cells after its name; numbers sort by their amounts, with unknown ones last."""
    texts = cells(option, whole=whole)[1:]
    for text, amount in zip(texts, amounts(option, whole=whole)[1:], strict=True):
        yield text if isinstance(amount, str) else Cell(text or "—", amount)


def _swept(results: Sequence[Result]) -> Iterator[Section]:
    """The best option for each combination, and the fronts of all combinations in one plot."""
    firsts = [next(iter(kept(each)), None) for each in results]
    whole = has_length([each for each in firsts if each is not None])
    heads = [
        Column("no."),
        *(Column(path, is_number=True) for path in results[0].values),
        Column("clusters", is_number=True),
        *(Column(name, is_number=is_number) for name, is_number in columns(whole=whole)),
    ]
    rows = [
        _combination(number, result, first, whole=whole)
        for number, (result, first) in enumerate(zip(results, firsts, strict=True), 1)
    ]
    points = [
        point
        for number, result in enumerate(results, 1)
        for point in _fronts(number, result, whole=whole)
    ]
    yield Section(
        "sweep",
        "What comes first",
        (
            tag(
                "p",
                "Each combination of values with the cluster that comes first under it. The "
                "plot has the whole front of each combination by its number, and a star where it "
                "comes first.",
            ),
            _plot(points, _SEVERAL, whole=whole),
            table("Combinations of values", heads, rows, sortable=True),
        ),
    )


def _combination(number: int, result: Result, first: Option | None, *, whole: bool) -> TableRow:
    values = (Cell(str(each), _number(str(each))) for each in result.values.values())
    count = Cell(str(len(kept(result))), float(len(kept(result))))
    if first is None:
        blank = ("—",) * (len(columns(whole=whole)) - 1)
        return (str(number), *values, count, "none is left", *blank)
    return (str(number), *values, count, first.cluster, *_cells(first, whole=whole))


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _fronts(number: int, result: Result, *, whole: bool) -> Iterator[Point]:
    left = kept(result)
    values = ", ".join(f"{path}={value}" for path, value in result.values.items())
    for seconds, cost, each in placed(front(left, whole=whole), whole=whole):
        hint = f"{values}, {each.cluster}: {duration(seconds)}, {dollars(cost)}"
        is_first = each.cluster == result.best
        yield Point(str(number), hint, seconds, cost, "chosen" if is_first else "fits")


def _left_out(result: Result, asking: Asking) -> Iterator[Section]:
    """The options that miss a limit, and those that do not fit."""
    rows: list[TableRow] = []
    for each in result.options:
        if each.misses is not None:
            rows.append((each.cluster, each.devices, limits([each], asking)))
        elif not each.fits:
            rows.append((each.cluster, each.devices, each.why or ""))
    if rows:
        heads = (Column("cluster"), Column("devices"), Column("reason"))
        yield Section(
            "rest", "What is left out", (table("Clusters that are left out", heads, rows),)
        )


def _sources(choice: Choice) -> Iterator[Section]:
    """The accuracy of the numbers, and the sources and dates of the prices."""
    words: list[Element] = [
        tag(
            "p",
            "Time is a forecast of the whole run with loading and saving. Of a step's account, "
            f"{OFF}; the margin is {MARGIN:.0%}. Cost is nodes x hours x price. Energy is that of "
            "the devices at their power limit, which is the most they take.",
        )
    ]
    if is_at_most(choice):
        words.append(tag("p", f"{FULL_SAMPLES[0].upper()}{FULL_SAMPLES[1:]}."))
    doubts = dict.fromkeys(o.doubt for r in choice.results for o in r.options if o.doubt)
    words.extend(tag("p", f"In doubt: {why}.") for why in doubts)
    rows = [(day, source) for day, source in dates(choice)]
    heads = (Column("prices of"), Column("read in"))
    listed = table("Prices that are shown", heads, rows) if rows else None
    yield Section("trust", "What the numbers rest on", (*words, listed))
