"""The JSON output of `tunec choose`: a spec's plan on each cluster, with its time and price."""

from typing import Any, Literal

from tunec.schemas.shape import Shape

By = Literal["cost", "time", "energy"]
"""The criterion by which clusters are sorted, smallest first."""


Miss = Literal["too long", "too expensive", "no price", "no such price"]
"""Why an option that fits is left out; `no such price`: none of the requested provider and
region."""


class HourlyPrice(Shape):
    """The price of one node per hour, and its source."""

    provider: str
    """`aws`, `gcp`, `azure`, `lambda`, a name of a list of one's own, or `owner` for a cluster
    whose own file has a price."""
    instance: str
    """The provider's name of one node."""
    region: str
    """Empty for a cluster whose own file has a price."""
    market: Literal["on_demand", "spot"]
    dollars_per_node: float
    dated: str
    """When it was read: `2026-07-20`, or `2025-09-09 or later`; empty for a cluster's own price."""
    source: str


class Option(Shape):
    """A spec on one cluster."""

    cluster: str
    devices: str
    """Devices of all nodes: `8 x h100-sxm`."""
    nodes: int
    """Nodes that the plan uses and that must be paid for."""
    fits: bool
    why: str | None = None
    """The first error, if there is no plan."""
    memory_share: float | None = None
    """Share of a device's budget that the plan needs."""
    step_seconds: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    seconds: float | None = None
    """Forecast for the whole run, including loading and saving; none if its steps are unknown."""
    doubt: str | None = None
    """Why its forecast may be further off than those of others."""
    at_most: bool = False
    """Whether its time and cost are the most there can be: sample lengths are not given, and each
    sample is taken to be as long as `data.sequence`."""
    seconds_asked: int | None = None
    """The forecast with its margin, as requested from a cluster's queue."""
    price: HourlyPrice | None = None
    cost_dollars: float | None = None
    """Cost of the whole run: nodes x hours x price."""
    energy_kwh: float | None = None
    """Upper bound for the devices: their power limit for the whole run; none if it is unknown."""
    seconds_per_1000_samples: float | None = None
    cost_per_1000_samples: float | None = None
    cost_per_million_tokens: float | None = None
    energy_per_1000_samples: float | None = None
    misses: Miss | None = None
    """The limit or filter that leaves it out."""
    is_on_front: bool = False
    """Whether no other remaining option is both cheaper and faster."""


class Result(Shape):
    """Every option under one combination of swept values."""

    values: dict[str, Any] = {}
    """The swept values by their path in the spec; empty without a sweep."""
    options: tuple[Option, ...]
    """Options that fit within the limits, then those that miss a limit, both in the requested
    order; then those that do not fit."""
    best: str | None = None
    """The first cluster; none if no option remains."""


class Choice(Shape):
    """The request and its results."""

    spec: str
    everywhere: bool = False
    """Whether every cluster of the catalogue was tried, instead of the hardware that it names."""
    by: By
    market: Literal["on_demand", "spot"]
    within_seconds: int | None = None
    budget_dollars: float | None = None
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    results: tuple[Result, ...]
    diagnostics: tuple[dict[str, Any], ...] = ()
