"""One spec on one cluster as an option: whether it fits, how long it takes, what it costs."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.analyses.time.account import bounded
from tunec.compiler.driver import Planned
from tunec.compiler.ir.plan import Plan
from tunec.compiler.passes.plan_job import run_of
from tunec.compiler.review.outcome import Needs, doubt_of, expected_steps, is_at_most, needs_of
from tunec.schemas.choice import By, HourlyPrice, Option
from tunec.schemas.hardware.catalogue import device
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.prices.book import PriceRequest, Quote, quotes
from tunec.schemas.prices.price_list import PriceList

_HOUR: Final = 3600
_WATT_SECONDS: Final = 3.6e6
"""Watt seconds of a kilowatt hour."""
_MILLION: Final = 1e6
_THOUSAND: Final = 1000.0
"""The number of samples for which rates are given."""


class Asking(Struct, frozen=True):
    """The request: order, filters, limits and the user's prices."""

    by: By = "cost"
    wanted: PriceRequest = PriceRequest()
    own: tuple[PriceList, ...] = ()
    """The user's own price lists."""
    within: int | None = None
    """The most seconds that a run may take."""
    budget: float | None = None
    """The most dollars that a run may cost."""

    @property
    def is_filtered(self) -> bool:
        """Whether only some providers or regions are requested."""
        return bool(self.wanted.providers or self.wanted.regions)


def option_of(planned: Planned, cluster: Cluster, asking: Asking) -> Option:
    """Reduce a planned spec to the data that is compared."""
    needs, plan = needs_of(planned), planned.plan
    quote = next(iter(quotes(cluster, asking.wanted, asking.own)), None)
    known: dict[str, Any] = {
        "cluster": cluster.name,
        "devices": _devices(cluster),
        "price": _price(quote) if quote else None,
    }
    if plan is None or needs is None or not planned.ok:
        why = next((e.message for e in planned.diagnostics if e.severity == "error"), None)
        return Option(**known, nodes=cluster.node_count, fits=False, why=why or "nothing fits")
    nodes = plan.devices.nodes
    hourly = quote.per_node * nodes if quote else None
    watts = _watts(plan, cluster)
    return Option(
        **known,
        nodes=nodes,
        fits=True,
        memory_share=needs.required / needs.budget,
        step_seconds=needs.step_seconds,
        tokens_per_second=needs.tokens_per_second,
        samples_per_second=needs.samples_per_second,
        doubt=doubt_of(planned),
        at_most=is_at_most(planned),
        **_whole(plan, needs, hourly, watts),
        **_rates(needs, hourly, watts),
    )


def measured(option: Option, by: By, *, whole: bool) -> float | None:
    """The amount by which options are compared, of the whole run or of 1,000 samples."""
    name = _MEASURES[by][0 if whole else 1]
    found: float | None = getattr(option, name)
    return found


_MEASURES: Final = {
    "cost": ("cost_dollars", "cost_per_1000_samples"),
    "time": ("seconds", "seconds_per_1000_samples"),
    "energy": ("energy_kwh", "energy_per_1000_samples"),
}


def _whole(plan: Plan, needs: Needs, hourly: float | None, watts: float | None) -> dict[str, Any]:
    """The amounts of the whole run; empty if its length is unknown."""
    steps = expected_steps(plan)
    if steps is None:
        return {}
    run = run_of(plan, steps, needs.step_seconds, needs.encoding)
    return {
        "seconds": run.seconds,
        "seconds_asked": bounded(run),
        "cost_dollars": None if hourly is None else hourly * run.seconds / _HOUR,
        "energy_kwh": None if watts is None else watts * run.seconds / _WATT_SECONDS,
    }


def _rates(needs: Needs, hourly: float | None, watts: float | None) -> dict[str, Any]:
    """The amounts per 1,000 samples and per million tokens of training."""
    seconds = _THOUSAND / needs.samples_per_second
    found: dict[str, Any] = {"seconds_per_1000_samples": seconds}
    if hourly is not None:
        found["cost_per_1000_samples"] = hourly * seconds / _HOUR
        if needs.tokens_per_second:
            each = _MILLION / needs.tokens_per_second
            found["cost_per_million_tokens"] = hourly * each / _HOUR
    if watts is not None:
        found["energy_per_1000_samples"] = watts * seconds / _WATT_SECONDS
    return found


def _watts(plan: Plan, cluster: Cluster) -> float | None:
    """The power limit of all devices that the plan uses; None if it is unknown."""
    if cluster.is_mixed:
        return None
    power = device(plan.devices.model).power
    return None if power is None else power * plan.parallel.world


def _price(quote: Quote) -> HourlyPrice:
    return HourlyPrice(
        provider=quote.provider,
        instance=quote.instance,
        region=quote.region,
        market=quote.market,
        dollars_per_node=quote.per_node,
        dated=quote.dated,
        source=quote.source,
    )


def _devices(cluster: Cluster) -> str:
    """`16 x h100-sxm`: each device model with its count over all nodes."""
    counts: dict[str, int] = {}
    for node in cluster.nodes:
        for group in node.accelerators:
            name = device(group.device).name
            counts[name] = counts.get(name, 0) + node.count * group.count
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def has_length(options: Sequence[Option]) -> bool:
    """Whether the length of a run is known for any option."""
    return any(each.seconds is not None for each in options)
