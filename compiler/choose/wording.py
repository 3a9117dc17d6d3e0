"""Phrases of a choice, for the screen and the page."""

from collections.abc import Iterator, Sequence
from typing import Final

from tunec.compiler.choose.options import Asking
from tunec.compiler.choose.ranking import kept
from tunec.compiler.review.screen.screen import duration
from tunec.schemas.choice import Choice, Option, Result

_FIRST: Final = {"cost": "cheapest", "time": "fastest", "energy": "thriftiest"}
_LAST: Final = 9e99
_MARKETS: Final = {"on_demand": "on demand", "spot": "spot"}


FULL_SAMPLES: Final = (
    "time, cost and energy are the most there can be: each sample is taken to be as long as "
    "data.sequence, since data.lengths does not say how long they are (`tunec data` measures it)"
)


def is_at_most(choice: Choice) -> bool:
    """Whether `FULL_SAMPLES` holds for the options."""
    return any(option.at_most for result in choice.results for option in result.options)


def columns(*, whole: bool) -> tuple[tuple[str, bool], ...]:
    """The headings of the table, each with whether its column is numeric."""
    per = "" if whole else "/1k samples"
    return (
        ("cluster", False),
        ("devices", False),
        (f"time{per}", True),
        (f"cost{per}", True),
        ("$/h" if whole else "$/M tokens", True),
        ("from", False),
        (f"kWh{per}", True),
        ("memory", True),
    )


def cells(option: Option, *, whole: bool) -> tuple[str, ...]:
    """One option's row of the table."""
    seconds = option.seconds if whole else option.seconds_per_1000_samples
    cost = option.cost_dollars if whole else option.cost_per_1000_samples
    energy = option.energy_kwh if whole else option.energy_per_1000_samples
    return (
        option.cluster,
        option.devices,
        "" if seconds is None else duration(seconds),
        "" if cost is None else dollars(cost),
        _hourly(option) if whole else _tokens(option),
        _where(option),
        "" if energy is None else f"{energy:,.3g}",
        "" if option.memory_share is None else f"{option.memory_share:.0%}",
    )


def amounts(option: Option, *, whole: bool) -> tuple[float | str, ...]:
    """The sort key of each cell; unknown amounts come last."""
    known = (
        option.seconds if whole else option.seconds_per_1000_samples,
        option.cost_dollars if whole else option.cost_per_1000_samples,
        _dollars_an_hour(option) if whole else option.cost_per_million_tokens,
        option.energy_kwh if whole else option.energy_per_1000_samples,
        option.memory_share,
    )
    seconds, cost, price, energy, memory = (_LAST if each is None else each for each in known)
    return option.cluster, option.devices, seconds, cost, price, _where(option), energy, memory


def heading(choice: Choice) -> str:
    """The request in words."""
    asked = [f"{_MARKETS[choice.market]} prices", f"{_FIRST[choice.by]} first"]
    if choice.within_seconds is not None:
        asked.append(f"within {duration(choice.within_seconds)}")
    if choice.budget_dollars is not None:
        asked.append(f"for at most {dollars(choice.budget_dollars)}")
    where = ", on the whole catalogue instead of its own hardware" if choice.everywhere else ""
    return f"{choice.spec}{where}: {', '.join(asked)}"


def verdict(result: Result, asking: Asking) -> str:
    """The result in a sentence."""
    left = kept(result)
    if not left:
        fits = any(each.fits for each in result.options)
        return "nothing is left" if fits else "it fits none of these clusters"
    best = left[0]
    unpriced = asking.by == "cost" and best.price is None
    first = "none has a price, and first is" if unpriced else f"{_FIRST[asking.by]}:"
    parts = [f"{first} {best.cluster}"]
    about = _about(best)
    if best.price is not None and best.price.region:
        parts.append(f"{best.price.provider} {best.price.region}")
    if best.seconds is not None and best.seconds_asked is not None:
        parts.append(
            f"{about} {duration(best.seconds)} ({duration(best.seconds_asked)} with its margin)"
        )
    if best.cost_dollars is not None:
        parts.append(f"{about} {dollars(best.cost_dollars)}")
    elif best.cost_per_1000_samples is not None:
        parts.append(f"about {dollars(best.cost_per_1000_samples)} for 1,000 samples")
    if best.doubt:
        parts.append("in doubt")
    return ", ".join(parts)


def _about(option: Option) -> str:
    return "at most about" if option.at_most else "about"


def surer(result: Result, asking: Asking) -> str | None:
    """The first option that ends in time with its margin too; None if the best one does."""
    left = kept(result)
    if asking.within is None or not left or _ends(left[0], asking.within):
        return None
    found = next((each for each in left if _ends(each, asking.within)), None)
    if found is None:
        return "with its margin, none ends in time"
    spent = found.cost_dollars
    cost = "" if spent is None else f", {_about(found)} {dollars(spent)}"
    return f"with its margin, {found.cluster} is the first that ends in time{cost}"


def _ends(option: Option, within: float) -> bool:
    return option.seconds_asked is not None and option.seconds_asked <= within


def limits(missed: Sequence[Option], asking: Asking) -> str:
    """Why options that fit are not listed; `missed` are those with one reason, in order."""
    reason = missed[0].misses
    if reason == "too long":
        fastest = min(missed, key=lambda each: each.seconds or 0.0)
        least = f"; the fastest, {fastest.cluster}, takes {duration(fastest.seconds or 0.0)}"
        return f"which take longer than {duration(asking.within or 0)}{least}"
    if reason == "too expensive":
        cheapest = min(missed, key=lambda each: each.cost_dollars or 0.0)
        least = f"; the cheapest, {cheapest.cluster}, costs {dollars(cheapest.cost_dollars or 0.0)}"
        return f"which cost more than {dollars(asking.budget or 0)}{least}"
    return "whose price is not known" if reason == "no price" else "which no list prices there"


def dates(choice: Choice) -> Iterator[tuple[str, str]]:
    """The provider and date of each price shown, with its source, without duplicates."""
    found = {
        (f"{each.price.provider}, {each.price.dated}", each.price.source)
        for result in choice.results
        for each in result.options
        if each.fits and each.misses is None and each.price is not None and each.price.dated
    }
    yield from sorted(found)


def dollars(amount: float) -> str:
    """`$54.50`, `$0.0123`."""
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.3g}"


def _hourly(option: Option) -> str:
    if option.price is None:
        return ""
    each = f"{option.price.dollars_per_node:,.2f}"
    return each if option.nodes == 1 else f"{option.nodes} x {each}"


def _dollars_an_hour(option: Option) -> float | None:
    return None if option.price is None else option.price.dollars_per_node * option.nodes


def _tokens(option: Option) -> str:
    found = option.cost_per_million_tokens
    return "" if found is None else dollars(found)


def _where(option: Option) -> str:
    if option.price is None:
        return "no price"
    return f"{option.price.provider} {option.price.region}".rstrip()
