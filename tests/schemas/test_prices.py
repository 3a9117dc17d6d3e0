"""Prices: shipped lists are what they say, the last one read holds, and a user's own wins."""

from datetime import date

import pytest
from pydantic import ValidationError

from tunec.schemas.hardware.catalogue import cluster, cluster_names
from tunec.schemas.prices.book import OWNER, PriceRequest, providers, quotes, regions, shipped
from tunec.schemas.prices.price_list import Price, PriceList

LISTS = shipped()
EUROPE = ("eu", "europe", "france", "germany", "italy", "norway", "poland", "spain", "sweden")
WITHOUT_AMERICAN_ON_DEMAND = {
    "a4-highgpu-8g": "Google's list has spot prices alone that can be believed",
    "a4x-highgpu-4g": "no list has it",
    "a4x-maxgpu-4g-metal": "no list has it",
    "nd128isr-gb300-v6": "no list has it",
    "p3.16xlarge-p4d.24xlarge": "two kinds of machines",
    "p6e-gb200.36xlarge": "no list has it",
}


def own(**rows):
    return PriceList(provider="lab", dated=date(2026, 11, 1), regions={"cellar": rows})


def test_there_are_lists_of_the_large_providers():
    assert set(providers(LISTS)) == {"aws", "azure", "gcp", "lambda"}


@pytest.mark.parametrize("each", LISTS, ids=lambda each: f"{each.provider}-{each.dated}")
def test_a_list_names_its_source_and_clusters_that_there_are(each):
    assert "@" in each.source
    assert ", " in each.source
    assert each.dated < date(2026, 12, 1)
    named = {name for rows in each.regions.values() for name in rows}
    assert named <= set(cluster_names())
    assert set(each.instances) <= named


@pytest.mark.parametrize(
    "name",
    [n for n in cluster_names() if cluster(n).labels.get("cloud") in ("aws", "gcp", "azure")],
)
def test_every_machine_of_the_large_providers_has_an_american_price(name):
    found = quotes(cluster(name), PriceRequest())
    american = [each for each in found if each.region.startswith(("us-", "east", "west", "south"))]
    assert bool(american) != (name in WITHOUT_AMERICAN_ON_DEMAND)


def test_most_of_them_have_a_european_price_too():
    priced = [n for n in cluster_names() if quotes(cluster(n), PriceRequest())]
    european = [
        n
        for n in priced
        if any(
            any(word in each.region for word in EUROPE)
            for market in ("on_demand", "spot")
            for each in quotes(cluster(n), PriceRequest(market))
        )
    ]
    assert len(priced) > 35
    assert len(european) > 26


def test_the_price_that_was_read_last_holds():
    """AWS lists p5.48xlarge in two files; they agree, and the newer one is named."""
    wanted = PriceRequest(regions=("us-east-1",))
    (found,) = quotes(cluster("p5.48xlarge"), wanted)
    assert (found.per_hour, found.dated) == (55.04, "2026-07-20")
    newer = own(**{"p5.48xlarge": Price(on_demand=1.0)})
    older = newer.model_copy(
        update={"dated": date(2020, 1, 1), "regions": {"cellar": {"p5.48xlarge": Price(spot=2.0)}}}
    )
    for lists in ([newer, older], [older, newer]):
        assert [
            each.per_hour for each in quotes(cluster("p5.48xlarge"), PriceRequest(), lists)
        ] == [1.0]


def test_spot_comes_from_the_list_that_has_it():
    (found,) = quotes(cluster("p5.48xlarge"), PriceRequest("spot", regions=("us-east-1",)))
    assert found.per_hour == pytest.approx(17.6289)
    assert found.dated == "2025-09-09 or later"


def test_the_cheapest_region_comes_first():
    found = quotes(cluster("nd96isr-h100-v5"), PriceRequest())
    assert found[0].per_hour == pytest.approx(98.32)
    assert [each.per_node for each in found] == sorted(each.per_node for each in found)
    assert found[0].instance == "Standard_ND96isr_H100_v5"
    assert {each.region for each in found} >= {"eastus", "westeurope"}


def test_nodes_are_paid_for_one_by_one():
    """4 nodes at 98.32 dollars: 393.28 dollars an hour."""
    found = quotes(cluster("nd96isr-h100-v5-n4"), PriceRequest(regions=("eastus",)))
    assert [each.per_hour for each in found] == [pytest.approx(393.28)]


def test_a_list_of_ones_own_wins_and_so_does_the_price_in_a_cluster():
    a100 = cluster("a100-80g-x8")
    assert quotes(a100, PriceRequest()) == ()
    priced = a100.model_copy(update={"price_per_hour": 12.0})
    (found,) = quotes(priced, PriceRequest())
    assert (found.provider, found.per_hour) == (OWNER, 12.0)
    mine = own(**{a100.name: Price(on_demand=9.0)})
    (found,) = quotes(priced, PriceRequest(), [mine])
    assert (found.provider, found.region, found.per_hour) == ("lab", "cellar", 9.0)
    assert quotes(priced, PriceRequest(providers=("aws",))) == ()
    h100 = cluster("p5.48xlarge")
    mine = own(**{"p5.48xlarge": Price(on_demand=40.0)})
    assert [each.per_hour for each in quotes(h100, PriceRequest(), [mine])] == [40.0]


def test_providers_and_regions_are_filters():
    azure = cluster("nc64as-t4-v3")
    assert quotes(azure, PriceRequest(providers=("aws",))) == ()
    found = quotes(azure, PriceRequest(providers=("azure",), regions=("westeurope", "eastus")))
    assert [(each.region, each.per_hour) for each in found] == [
        ("eastus", 4.352),
        ("westeurope", 5.44),
    ]
    assert "us-east-1" in regions(LISTS)


@pytest.mark.parametrize(
    ("price", "says"),
    [
        ({}, "give `on_demand`, `spot`, or both"),
        ({"on_demand": 1.0, "spot": 1.5}, "more than 1.0 on demand"),
        ({"on_demand": 0}, "greater than 0"),
        ({"on_demand": float("inf")}, "finite"),
    ],
)
def test_a_price_that_cannot_be_is_refused(price, says):
    with pytest.raises(ValidationError, match=says):
        Price(**price)
