"""The order of options: those within the limits, the best first, and the front of cost and time."""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

from tunec.compiler.choose.options import Asking, has_length, measured
from tunec.schemas.choice import By, Miss, Option, Result


def result_of(options: Sequence[Option], asking: Asking, values: dict[str, Any]) -> Result:
    """All options in order: those within the limits, those that miss one, those that do not fit."""
    whole = has_length(options)
    judged = [each.model_copy(update={"misses": _missed(each, asking)}) for each in options]
    ordered = sorted(judged, key=lambda each: _order(each, asking.by, whole=whole))
    kept = [each for each in ordered if each.fits and each.misses is None]
    missing = [each for each in ordered if each.fits and each.misses is not None]
    rest = sorted((each for each in judged if not each.fits), key=lambda each: each.cluster)
    best = kept[0].cluster if kept else None
    return Result(values=values, options=(*_marked(kept, whole=whole), *missing, *rest), best=best)


def kept(result: Result) -> list[Option]:
    """The options that fit and are within every limit, in order."""
    return [each for each in result.options if each.fits and each.misses is None]


def _missed(option: Option, asking: Asking) -> Miss | None:
    """The limit or filter that an option misses; None if there is none."""
    if not option.fits:
        return None
    if option.price is None and asking.is_filtered:
        return "no such price"
    if asking.within is not None and (option.seconds or inf) > asking.within:
        return "too long"
    if asking.budget is None:
        return None
    if option.cost_dollars is None:
        return "no price"
    return "too expensive" if option.cost_dollars > asking.budget else None


def _order(option: Option, by: By, *, whole: bool) -> tuple[float, float, str]:
    """The requested amount, then cost or else time; unknown amounts come last."""
    other: By = "time" if by == "cost" else "cost"
    first, second = (measured(option, each, whole=whole) for each in (by, other))
    return inf if first is None else first, inf if second is None else second, option.cluster


def _marked(options: Sequence[Option], *, whole: bool) -> Iterator[Option]:
    """The options, with those on the front marked: no other is both faster and cheaper."""
    on_front = {id(each) for each in front(options, whole=whole)}
    for each in options:
        yield each.model_copy(update={"is_on_front": True}) if id(each) in on_front else each


def placed(options: Sequence[Option], *, whole: bool) -> list[tuple[float, float, Option]]:
    """Seconds and dollars of the options that have both."""
    return [
        (seconds, cost, each)
        for each in options
        if (seconds := measured(each, "time", whole=whole)) is not None
        and (cost := measured(each, "cost", whole=whole)) is not None
    ]


def front(options: Sequence[Option], *, whole: bool) -> list[Option]:
    """The options that no other beats in both cost and time, the fastest first."""
    found: list[Option] = []
    cheapest = inf
    for _, cost, each in sorted(
        placed(options, whole=whole), key=lambda one: (one[0], one[1], one[2].cluster)
    ):
        if cost < cheapest:
            found.append(each)
            cheapest = cost
    return found
