"""All price lists together: the price of a cluster per hour, by provider and region.

Of several prices for one machine in one region the latest counts. A user's own lists win: if one of
them names a cluster, the shipped lists are ignored for it.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tunec.schemas.caches import cached
from tunec.schemas.entries import names_in, read_entry
from tunec.schemas.hardware.catalogue import cluster as catalogued
from tunec.schemas.hardware.catalogue import cluster_names
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.prices.price_list import Price, PriceList

_LISTS: Final = Path(__file__).parent / "lists"
_REPEATED: Final = re.compile(r"(.+)-n[1-9]\d*")
"""A cluster of several equal nodes is named after the cluster with one node."""

Market = Literal["on_demand", "spot"]
OWNER: Final = "owner"
"""The provider's name for a cluster whose own file has a price."""


class Quote(NamedTuple):
    """The price of a cluster per hour."""

    provider: str
    instance: str
    """The provider's name of one node."""
    region: str
    """Empty if the cluster's own file has the price."""
    market: Market
    per_node: float
    """Dollars per hour for one node."""
    nodes: int
    dated: str
    """The date of the price; empty if the cluster's own file has it."""
    source: str

    @property
    def per_hour(self) -> float:
        """Dollars per hour for the whole cluster."""
        return self.per_node * self.nodes


class PriceRequest(NamedTuple):
    """The requested prices."""

    market: Market = "on_demand"
    providers: tuple[str, ...] = ()
    """Empty: every provider."""
    regions: tuple[str, ...] = ()
    """Empty: every region."""


def shipped() -> tuple[PriceList, ...]:
    """The lists that are shipped; raise BrokenEntry."""
    return tuple(_list(name) for name in names_in(_LISTS))


def quotes(
    cluster: Cluster, wanted: PriceRequest, own: Sequence[PriceList] = ()
) -> tuple[Quote, ...]:
    """The prices of a cluster, cheapest first; empty if none is known.

    `own`: the user's lists, which come first, then the cluster's `price_per_hour`, then shipped
    lists.
    """
    name = _priced_name(cluster.name, own)
    if name is not None:
        found = _found(name, cluster, own, wanted)
    elif cluster.price_per_hour is not None and not _is_shipped(cluster):
        found = _of_owner(cluster, cluster.price_per_hour, wanted)
    else:
        known = shipped()
        name = _priced_name(cluster.name, known)
        found = _found(name, cluster, known, wanted) if name is not None else ()
    return tuple(sorted(found, key=lambda each: (each.per_node, each.provider, each.region)))


def providers(lists: Sequence[PriceList]) -> tuple[str, ...]:
    """The providers in some lists."""
    return tuple(sorted({each.provider for each in lists}))


def regions(lists: Sequence[PriceList]) -> tuple[str, ...]:
    """Every region of some lists."""
    return tuple(sorted({region for each in lists for region in each.regions}))


def _priced_name(cluster: str, lists: Sequence[PriceList]) -> str | None:
    """The name under which lists have a cluster: its own, or that of one of its nodes."""
    repeated = _REPEATED.fullmatch(cluster)
    names = (cluster, repeated[1]) if repeated else (cluster,)
    known = {name for each in lists for rows in each.regions.values() for name in rows}
    return next((name for name in names if name in known), None)


def _is_shipped(cluster: Cluster) -> bool:
    """Whether a price comes from the catalogue's own entry, which has no date."""
    name = cluster.name
    return name in cluster_names() and catalogued(name).price_per_hour == cluster.price_per_hour


def _of_owner(cluster: Cluster, dollars: float, wanted: PriceRequest) -> tuple[Quote, ...]:
    """The price in a cluster's own file: what its owner pays, whatever the market."""
    if wanted.regions or (wanted.providers and OWNER not in wanted.providers):
        return ()
    nodes = cluster.node_count
    source = "price_per_hour of the cluster"
    return (Quote(OWNER, cluster.name, "", wanted.market, dollars / nodes, nodes, "", source),)


def _found(
    name: str, cluster: Cluster, lists: Sequence[PriceList], wanted: PriceRequest
) -> tuple[Quote, ...]:
    latest: dict[tuple[str, str], tuple[PriceList, float]] = {}
    for each, region, dollars in _dollars(name, lists, wanted):
        at = (each.provider, region)
        if at not in latest or latest[at][0].dated < each.dated:
            latest[at] = (each, dollars)
    return tuple(
        Quote(
            each.provider,
            each.instances.get(name, name),
            region,
            wanted.market,
            dollars,
            cluster.node_count,
            each.day,
            each.source,
        )
        for (_, region), (each, dollars) in latest.items()
    )


def _dollars(
    name: str, lists: Sequence[PriceList], wanted: PriceRequest
) -> Iterator[tuple[PriceList, str, float]]:
    for each in lists:
        if wanted.providers and each.provider not in wanted.providers:
            continue
        for region, rows in each.regions.items():
            price = rows.get(name)
            if price is None or (wanted.regions and region not in wanted.regions):
                continue
            dollars = _of_market(price, wanted.market)
            if dollars is not None:
                yield each, region, dollars


def _of_market(price: Price, market: Market) -> float | None:
    return price.spot if market == "spot" else price.on_demand


@cached()
def _list(name: str) -> PriceList:
    return read_entry(_LISTS, name, PriceList)
