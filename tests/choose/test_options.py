"""What an option says of a plan, what misses a limit, and sweeps: what they mean and refuse."""

from pathlib import Path

import pytest

from tunec.compiler.choose.options import Asking, option_of
from tunec.compiler.choose.ranking import front, kept, result_of
from tunec.compiler.choose.screen import letters, picture
from tunec.compiler.choose.sweep import MOST, NotASweep, combinations, read_sweep
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_mapping
from tunec.schemas.choice import HourlyPrice, Option
from tunec.schemas.hardware.catalogue import cluster
from tunec.schemas.prices.book import PriceRequest

SPEC = {
    "tunec": 1,
    "model": "llama-3.1-8b",
    "method": "lora",
    "data": {"train": "train.jsonl", "samples": 10_000, "sequence": 2048},
}


def planned(hardware, **more):
    loaded = load_mapping({**SPEC, "hardware": hardware, **more}, base=Path())
    assert loaded.diagnostics == ()
    return plan(loaded, repairing=False)


@pytest.mark.parametrize(
    ("hardware", "wanted", "nodes", "per_node"),
    [
        ("p5.48xlarge", PriceRequest(regions=("us-east-1",)), 1, 55.04),
        ("nd96isr-h100-v5-n2", PriceRequest(regions=("westeurope",)), 2, 127.816),
        ("g2-standard-96", PriceRequest("spot", regions=("us-central1",)), 1, 4.499264),
    ],
)
def test_a_cost_is_nodes_times_hours_times_price(hardware, wanted, nodes, per_node):
    """The hours: a quarter of one to start, weights in 16 bits and checkpoints at 0.5 GB/s, and
    the steps; a checkpoint is at most 16 bytes of each trained parameter, the last one too."""
    found = planned(hardware)
    option = option_of(found, cluster(hardware), Asking(wanted=wanted))
    decided, steps = found.plan, found.plan.schedule.steps
    saves = steps // decided.schedule.save_steps + 1
    seconds = 900 + 2 * 8_030_261_248 / 0.5e9 + steps * found.time.step_seconds
    seconds += saves * 16 * decided.adapter.trainable_parameters / 0.5e9
    assert steps > 100
    assert option.seconds == pytest.approx(seconds)
    assert option.nodes == nodes
    assert option.price.dollars_per_node == pytest.approx(per_node)
    assert option.cost_dollars == pytest.approx(nodes * per_node * seconds / 3600)
    assert option.seconds_asked == decided.job.duration


def test_energy_is_that_of_the_devices_at_their_limit():
    """8 devices of 700 W."""
    option = option_of(planned("p5.48xlarge"), cluster("p5.48xlarge"), Asking())
    assert option.energy_kwh == pytest.approx(8 * 0.7 * option.seconds / 3600)
    unknown = option_of(planned("p6-b300.48xlarge"), cluster("p6-b300.48xlarge"), Asking())
    assert unknown.fits
    assert unknown.energy_kwh is None


def test_without_a_length_there_are_rates_alone():
    data = {"train": "train.jsonl", "sequence": 2048}
    found = planned("p5.48xlarge", data=data)
    option = option_of(found, cluster("p5.48xlarge"), Asking())
    assert (option.seconds, option.cost_dollars, option.energy_kwh) == (None, None, None)
    seconds = 1000 / found.time.samples_per_second
    assert option.seconds_per_1000_samples == pytest.approx(seconds)
    assert option.cost_per_1000_samples == pytest.approx(55.04 * seconds / 3600)
    tokens = 1e6 / found.time.tokens_per_second
    assert option.cost_per_million_tokens == pytest.approx(55.04 * tokens / 3600)


def test_a_cluster_without_a_price_has_hours_alone():
    option = option_of(planned("h100-sxm-x8"), cluster("h100-sxm-x8"), Asking())
    assert option.fits
    assert option.seconds > 0
    assert (option.price, option.cost_dollars, option.cost_per_1000_samples) == (None, None, None)


def test_what_does_not_fit_says_why():
    option = option_of(planned("g4dn.xlarge"), cluster("g4dn.xlarge"), Asking())
    assert not option.fits
    assert option.why.startswith("nothing fits: the smallest layout needs")
    assert option.cost_dollars is None


# ── order, front and limits ──────────────────────────────────────────────────────────────────────

PRICE = HourlyPrice(
    provider="p",
    instance="i",
    region="r",
    market="on_demand",
    dollars_per_node=1,
    dated="",
    source="",
)


def option(name, seconds, cost, energy=None, *, fits=True):
    return Option(
        cluster=name,
        devices="",
        nodes=1,
        fits=fits,
        why=None if fits else "no",
        seconds=seconds,
        cost_dollars=cost,
        energy_kwh=energy,
        price=None if cost is None else PRICE,
    )


EVERY = [
    option("slow", 400, 1.0, 9.0),
    option("fast", 100, 8.0, 1.0),
    option("middle", 200, 4.0, 5.0),
    option("beaten", 300, 4.0, 2.0),
    option("unpriced", 50, None),
    option("small", None, None, fits=False),
]


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("cost", ["slow", "middle", "beaten", "fast", "unpriced", "small"]),
        ("time", ["unpriced", "fast", "middle", "beaten", "slow", "small"]),
        ("energy", ["fast", "beaten", "middle", "slow", "unpriced", "small"]),
    ],
)
def test_what_is_not_known_comes_last(by, order):
    found = result_of(EVERY, Asking(by), {})
    assert [each.cluster for each in found.options] == order
    assert found.best == order[0]


def test_the_front_holds_what_nothing_beats_in_both():
    assert [each.cluster for each in front(EVERY, whole=True)] == ["fast", "middle", "slow"]
    marked = [each.cluster for each in result_of(EVERY, Asking(), {}).options if each.is_on_front]
    assert marked == ["slow", "middle", "fast"]
    twins = [option("a", 100, 1.0), option("b", 100, 1.0)]
    assert [each.cluster for each in front(twins, whole=True)] == ["a"]


def test_limits_and_filters_say_what_misses_them():
    asking = Asking(within=250, budget=5.0)
    found = result_of(EVERY, asking, {})
    assert [each.cluster for each in kept(found)] == ["middle"]
    assert {each.cluster: each.misses for each in found.options if each.misses} == {
        "slow": "too long",
        "beaten": "too long",
        "fast": "too expensive",
        "unpriced": "no price",
    }
    found = result_of(EVERY, Asking(wanted=PriceRequest(providers=("p",))), {})
    assert {each.cluster: each.misses for each in found.options if each.misses} == {
        "unpriced": "no such price"
    }
    assert result_of(EVERY, Asking(within=10), {}).best is None


def test_the_picture_has_the_front_by_letters_and_the_rest_as_dots():
    options = kept(result_of(EVERY, Asking(), {}))
    named = letters(options)
    assert named == {"slow": "a", "middle": "b", "fast": "c"}
    lines = picture(options, named, whole=True, drawing=True)
    drawn = "".join(line.partition("│")[2] for line in lines)
    assert sorted(drawn.replace(" ", "")) == ["a", "b", "c", "·"]
    columns = {c: next(line.index(c) for line in lines if c in line[9:]) for c in "abc"}
    assert columns["c"] < columns["b"] < columns["a"]
    rows = {c: next(at for at, line in enumerate(lines) if c in line[9:]) for c in "abc"}
    assert rows["c"] < rows["b"] < rows["a"]
    assert picture(options[:1], named, whole=True, drawing=True) == []
    plain = "\n".join(picture(options, named, whole=True, drawing=False))
    assert plain.isascii()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("data.sequence=2k..32k", ("2048", "4096", "8192", "16384", "32768")),
        ("data.sequence=1000..5000", ("1000", "2000", "4000", "5000")),
        ("data.sequence=4..4", ("4",)),
        ("data.sequence=512..1k", ("512", "1024")),
        ("method.lora.rank=8,16, 64", ("8", "16", "64")),
        ("method=lora", ("lora",)),
    ],
)
def test_values_of_a_sweep(text, values):
    found = read_sweep(text)
    assert found.path == text.partition("=")[0]
    assert found.values == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("data.sequence", "must have the form path=values"),
        ("=1,2", "must have the form path=values"),
        ("a=1,,2", "has an empty value"),
        ("a=", "`a` has no value"),
        ("a=8,8", "has a value twice"),
        ("a=32k..2k", "begins above its end"),
        ("a=2k...4k", "is not a range"),
        ("a=0..4", "is not a range"),
        (f"a={','.join(map(str, range(MOST + 1)))}", f"at most {MOST} are swept"),
    ],
)
def test_what_is_no_sweep(text, says):
    with pytest.raises(NotASweep, match=says):
        read_sweep(text)


def test_combinations_are_bounded_and_every_one():
    found = combinations([read_sweep("a=1,2"), read_sweep("b=x,y")])
    assert found == (
        (("a", "1"), ("b", "x")),
        (("a", "1"), ("b", "y")),
        (("a", "2"), ("b", "x")),
        (("a", "2"), ("b", "y")),
    )
    with pytest.raises(NotASweep, match="swept twice"):
        combinations([read_sweep("a=1"), read_sweep("a=2")])
    nine = [read_sweep(f"{name}={','.join(map(str, range(9)))}") for name in "ab"]
    with pytest.raises(NotASweep, match="81 combinations, and at most 64"):
        combinations(nine)
