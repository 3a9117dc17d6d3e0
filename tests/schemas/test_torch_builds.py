"""Builds of torch held to what torch says of them, and prices to what their lists say."""

from datetime import date

import pytest
from packaging.version import Version
from pydantic import ValidationError

from tunec.schemas.hardware.catalogue import cluster, cluster_names, device, device_names
from tunec.schemas.prices.book import OWNER, PriceRequest, providers, quotes, regions, shipped
from tunec.schemas.prices.price_list import Price, PriceList
from tunec.schemas.torch_builds import BUILDS, USUAL, builds_of, newest_for

EVERY = [device(name) for name in device_names()]
DEVICES = [each for each in EVERY if each.vendor == "nvidia"]
DIGITS = 10


def test_the_builds_of_the_usual_release_have_the_kernels_that_torch_lists():
    """torch/cuda/__init__.py `PYTORCH_RELEASES_CODE_CC`, which its own warning tells."""
    cuda = pytest.importorskip("torch.cuda")
    if cuda.torch.__version__.partition("+")[0] != USUAL:
        pytest.skip(f"the interpreter has torch {cuda.torch.__version__}, and no {USUAL}")
    for build in builds_of(USUAL):
        if build.vendor != "nvidia":
            continue
        listed = cuda.PYTORCH_RELEASES_CODE_CC[f"{build.name[2:4]}.{build.name[4:]}"]["x86_64"]
        assert {DIGITS * major + minor for major, minor in build.kernels} == listed


@pytest.mark.parametrize("each", DEVICES, ids=lambda each: each.name)
def test_a_device_runs_what_torch_says_that_it_runs(each):
    cuda = pytest.importorskip("torch.cuda")
    major, minor = each.compute_capability
    for build in (build for build in BUILDS if build.vendor == "nvidia"):
        said = any(
            cuda._code_compatible_with_device(DIGITS * major + minor, DIGITS * a + b)
            for a, b in build.kernels
        )
        assert build.runs_on("nvidia", (major, minor)) == said, build.version


@pytest.mark.parametrize("each", DEVICES, ids=lambda each: each.name)
def test_every_device_of_the_catalogue_has_a_build(each):
    build = newest_for("nvidia", each.compute_capability)
    assert build is not None
    assert build.release == USUAL
    old = each.compute_capability < (7, 5)
    assert (build.name == "cu126") == old


@pytest.mark.parametrize(
    "each",
    [each for each in EVERY if each.form_factor == "superchip" and each.vendor == "nvidia"],
    ids=lambda each: each.name,
)
def test_superchips_have_their_kernels_on_arm_too(each):
    """torch/cuda/__init__.py `PYTORCH_RELEASES_CODE_CC`, whose lists for `aarch64` are shorter."""
    cuda = pytest.importorskip("torch.cuda")
    if cuda.torch.__version__.partition("+")[0] != USUAL:
        pytest.skip(f"the interpreter has torch {cuda.torch.__version__}, and no {USUAL}")
    build = newest_for("nvidia", each.kernels)
    listed = cuda.PYTORCH_RELEASES_CODE_CC[f"{build.name[2:4]}.{build.name[4:]}"]["aarch64"]
    major, minor = each.compute_capability
    asked = DIGITS * major + minor
    assert any(cuda._code_compatible_with_device(asked, code) for code in listed)


@pytest.mark.parametrize(
    ("name", "release", "runs"),
    [
        *(("b300", "2.6", False), ("b300", "2.7", True), ("gb10", "2.6", False)),
        *(("gb10", "2.7", True), ("rtx-pro-6000", "2.8", True), ("gb300", "2.15", True)),
        *(("mi355x", "2.6", False), ("mi355x", "2.10", True), ("mi300x", "2.6", True)),
    ],
)
def test_first_release_with_kernels_for_a_device(name, release, runs):
    each = device(name)
    assert any(build.runs_on(each.vendor, each.kernels) for build in builds_of(release)) == runs


def test_builds_are_in_order_with_one_usual_build_a_release():
    releases = list(dict.fromkeys(each.release for each in BUILDS))
    assert releases == sorted(releases, key=Version)
    for release in releases:
        usual = [each.is_usual for each in BUILDS if each.release == release]
        assert usual == [True, *(False for _ in usual[1:])]
    assert all(each.source.strip() for each in BUILDS)


def test_the_last_release_leaves_older_devices_behind():
    (newest,) = builds_of("2.15")
    assert not newest.runs_on("nvidia", (7, 0))
    assert newest.runs_on("nvidia", (8, 9))
    assert newest_for("intel", None) is None
    assert {newest_for("amd", each.gfx).name for each in EVERY if each.gfx} == {"rocm7.2"}


LISTS = shipped()
EUROPE = ("eu", "europe", "france", "germany", "italy", "norway", "poland", "spain", "sweden")
WITHOUT_AMERICAN_ON_DEMAND = {
    "a4-highgpu-8g": "Google's list has spot prices alone that can be believed",
    "a4x-highgpu-4g": "no list has it",
    "a4x-maxgpu-4g-metal": "no list has it",
    "nd128isr-gb300-v6": "no list has it",
    "p3.16xlarge-p4d.24xlarge": "two kinds of machines",
    "p5e.48xlarge": "no list has it",
    "p6e-gb200.36xlarge": "no list has it",
}


def own(**rows):
    return PriceList(provider="lab", dated=date(2026, 11, 1), regions={"cellar": rows})


def test_there_are_lists_of_the_large_providers():
    assert set(providers(LISTS)) == {"aws", "azure", "gcp", "lambda", "oci"}


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
