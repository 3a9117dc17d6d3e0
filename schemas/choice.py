"""What `tunec choose` says, as JSON: a spec's plan on each cluster, with its time and price."""

from typing import Any, Literal

from tunec.schemas.shape import Shape

By = Literal["cost", "time", "energy"]
"""What clusters are put in order by, least first."""


Miss = Literal["too long", "too expensive", "no price", "no such price"]
"""Why an option that fits is left out: `no such price` is of the asked provider and region."""


class HourlyPrice(Shape):
    """What one node costs an hour, and where that was read."""

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
    """Nodes that the plan uses, which are paid for."""
    fits: bool
    why: str | None = None
    """The first error, where there is no plan."""
    memory_share: float | None = None
    """Share of a device's budget that the plan needs."""
    step_seconds: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    seconds: float | None = None
    """Forecast of the whole run, loading and saving included; none where its steps are unknown."""
    seconds_asked: int | None = None
    """The forecast with its margin, as a cluster's queue is asked for."""
    price: HourlyPrice | None = None
    cost_dollars: float | None = None
    """Of the whole run: nodes x hours x price."""
    energy_kwh: float | None = None
    """Of the devices, at most: at their power limit for the whole run; none where it is unknown."""
    seconds_per_1000_samples: float | None = None
    cost_per_1000_samples: float | None = None
    cost_per_million_tokens: float | None = None
    energy_per_1000_samples: float | None = None
    misses: Miss | None = None
    """The limit or filter that leaves it out."""
    is_on_front: bool = False
    """Whether no other option that is left is both cheaper and faster."""


class Result(Shape):
    """Every option under one combination of swept values."""

    values: dict[str, Any] = {}
    """The swept values by their path in the spec; empty without a sweep."""
    options: tuple[Option, ...]
    """What fits and keeps the limits, then what misses one, both in the asked order; then what
    does not fit."""
    best: str | None = None
    """The cluster that comes first; none where nothing is left."""


class Choice(Shape):
    """What was asked, and what came of it."""

    spec: str
    by: By
    market: Literal["on_demand", "spot"]
    within_seconds: int | None = None
    budget_dollars: float | None = None
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    results: tuple[Result, ...]
    diagnostics: tuple[dict[str, Any], ...] = ()
