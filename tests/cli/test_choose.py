"""`tunec choose`: what it prints for people and machines, and what it refuses."""

import json
import os
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.cli.shell import FIVE

from tunec.compiler.analyses.time.account import MARGIN, OFF

SCHEMA = json.loads(Path("schemas/json/tunec/choice.json").read_text("utf-8"))
THREE = ("--hardware", "p5.48xlarge", "g5.2xlarge", "h100-sxm-x8")


def chosen(tunec, *arguments):
    found = tunec("choose", FIVE, *arguments, "--format", "json")
    assert (found.code, found.err) == (0, "")
    Draft202012Validator(SCHEMA).validate(found.json)
    return found.json


def names(result):
    return [each["cluster"] for each in result["options"] if each["fits"] and not each["misses"]]


@pytest.fixture
def without_length(tmp_path):
    spec = tmp_path / "spec.yaml"
    data = "{train: train.jsonl, sequence: 2048}"
    spec.write_text(
        f"tunec: 1\nmodel: llama-3.1-8b\nmethod: lora\ndata: {data}\nhardware: a100-80g-x8\n"
    )
    return spec


def test_the_catalogue_is_tried_and_the_cheapest_comes_first(tunec):
    (found,) = chosen(tunec)["results"]
    options = [each for each in found["options"] if each["cost_dollars"] is not None]
    assert len(found["options"]) > 60
    assert len(options) > 25
    costs = [each["cost_dollars"] for each in options]
    assert costs == sorted(costs)
    assert found["best"] == options[0]["cluster"]
    dates = {each["price"]["dated"] for each in options}
    assert {"2026-07-20", "2026-08-03", "2026-06-18"} <= dates
    first = tunec("choose", FIVE).out.splitlines()[0]
    assert first.startswith("spec, on the whole catalogue instead of its own hardware: on demand")


def test_the_screen_says_what_how_long_and_of_which_day_the_prices_are(tunec):
    found = tunec("choose", FIVE, *THREE)
    assert (found.code, found.err) == (0, f"next: tunec plan {FIVE} --hardware g5.2xlarge\n")
    lines = found.out.splitlines()
    assert lines[0] == "spec: on demand prices, cheapest first"
    assert lines[2].startswith("cheapest: g5.2xlarge, aws us-east-1, at most about 7.5 h (")
    assert any("h100-sxm-x8" in line and "no price" in line for line in lines)
    assert any("└──" in line for line in lines)
    (dated,) = (
        at for at, line in enumerate(lines) if line.startswith("prices of aws, 2026-07-20:")
    )
    assert lines[dated].split()[4].startswith("aws/karpenter-provider-aws@")
    assert all(line.startswith("    ") for line in lines[dated + 1 :])
    assert lines[-1].endswith("from the AWS Price List")
    assert f"time is a forecast with a margin of {MARGIN:.0%}:\n  {OFF}\n" in found.out


def test_what_ends_in_time_with_its_margin_too_is_named(tunec):
    found = tunec("choose", FIVE, *THREE, "--within", "8h").out.splitlines()
    assert found[2].startswith(
        "cheapest: g5.2xlarge, aws us-east-1, at most about 7.5 h (12.8 h with its"
    )
    assert found[3].startswith(
        "with its margin, p5.48xlarge is the first that ends in time, at most about $"
    )
    found = tunec("choose", FIVE, "--hardware", "g5.2xlarge", "--within", "8h").out.splitlines()
    assert found[3] == "with its margin, none ends in time"
    assert tunec("choose", FIVE, *THREE, "--within", "13h").out.splitlines()[3] == ""


def test_a_forecast_that_may_be_far_off_is_in_doubt(tunec):
    asked = ("choose", FIVE, "--hardware", "nd96isr-mi300x-v5", "g5.2xlarge", "--set")
    found = tunec(*asked, "method=qlora").out
    assert "in doubt: nd96isr-mi300x-v5: how fast bitsandbytes expands weights on AMD's" in found
    assert "in doubt" not in tunec(*asked, "method=lora").out


def test_what_has_no_price_is_not_called_the_cheapest(tunec):
    found = tunec("choose", FIVE, "--hardware", "h100-sxm-x8").out.splitlines()
    assert found[2].startswith("none has a price, and first is h100-sxm-x8, at most about ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((FIVE, "--within", "12", "hours"), "--within takes one word: only what ends within 12h"),
        (("--hardware", "l4-x8", FIVE), "name the spec first, `tunec choose SPEC ...`: --hardware"),
        ((), "name the spec first, `tunec choose SPEC ...`\n"),
    ],
)
def test_words_in_the_wrong_place_are_told_with_what_took_them(tunec, arguments, said):
    found = tunec("choose", *arguments)
    assert found.code == 2
    assert said in found.err


def test_the_order_can_be_that_of_time_and_energy(tunec):
    (found,) = chosen(tunec, *THREE, "--by", "time")["results"]
    assert names(found) == ["p5.48xlarge", "h100-sxm-x8", "g5.2xlarge"]
    (found,) = chosen(tunec, *THREE, "--by", "energy")["results"]
    used = [each["energy_kwh"] for each in found["options"]]
    assert used == sorted(used)


def test_limits_leave_out_what_misses_them(tunec):
    (found,) = chosen(tunec, *THREE, "--within", "2h", "--budget", "$200")["results"]
    assert names(found) == ["p5.48xlarge"]
    missing = {each["cluster"]: each["misses"] for each in found["options"] if each["misses"]}
    assert missing == {"g5.2xlarge": "too long", "h100-sxm-x8": "no price"}


def test_nothing_left_says_how_far_off_the_nearest_is(tunec):
    found = tunec("choose", FIVE, "--hardware", "p5.48xlarge", "g5.2xlarge", "--within", "5min")
    assert found.code == 1
    assert "nothing is left" in found.out
    assert "left out: 2, which take longer than 5 min; the fastest, p5.48xlarge, takes" in found.out


def test_spot_providers_and_regions_choose_prices(tunec):
    arguments = ("--spot", "--provider", "aws", "--region", "eu-*")
    (found,) = chosen(tunec, *THREE, *arguments)["results"]
    prices = {each["cluster"]: each["price"] for each in found["options"]}
    assert prices["p5.48xlarge"]["market"] == "spot"
    assert prices["p5.48xlarge"]["region"] == "eu-west-2"
    assert prices["g5.2xlarge"]["region"] == "eu-north-1"
    assert prices["h100-sxm-x8"] is None
    assert "h100-sxm-x8" not in names(found)


def test_a_list_of_ones_own_and_a_folder_of_clusters(tunec, tmp_path):
    shown = tunec("catalog", "clusters", "dgx-h100").out
    (tmp_path / "clusters").mkdir()
    mine = shown.replace("name: dgx-h100", "name: mine").replace(
        "price_per_hour: null", "price_per_hour: 30.0"
    )
    (tmp_path / "clusters" / "mine.yaml").write_text(mine)
    lists = tmp_path / "prices.yaml"
    lists.write_text(
        "provider: lab\ndated: 2026-11-01\nregions: {cellar: {h100-sxm-x8: {on_demand: 20}}}\n"
    )
    hardware = ("--hardware", tmp_path / "clusters", "h100-sxm-x8", "p5.48xlarge")
    (found,) = chosen(tunec, *hardware, "--prices", lists)["results"]
    prices = {each["cluster"]: each["price"] for each in found["options"]}
    assert (prices["mine"]["provider"], prices["mine"]["dollars_per_node"]) == ("owner", 30)
    assert (prices["h100-sxm-x8"]["provider"], prices["h100-sxm-x8"]["dated"]) == (
        "lab",
        "2026-11-01",
    )
    assert prices["p5.48xlarge"]["provider"] == "aws"
    assert tunec("choose", FIVE, *hardware, "--prices", lists, "--provider", "lab").code == 0


def test_a_run_of_unknown_length_has_rates_and_no_limits(tunec, without_length):
    found = tunec("choose", without_length, *THREE)
    assert found.code == 0
    assert "for 1,000 samples" in found.out
    assert "$/M tokens" in found.out
    found = tunec("choose", without_length, *THREE, "--within", "12h")
    assert found.code == 1
    assert "error[E0302]: `--within` needs the length of the run" in found.err
    assert "--set data.samples=10k" in found.err


def test_a_sweep_tries_every_combination(tunec):
    sweeps = ("--sweep", "data.sequence=1k..4k", "--sweep", "method.lora.rank=8,64")
    found = chosen(tunec, *THREE, *sweeps)["results"]
    assert [each["values"] for each in found] == [
        {"data.sequence": sequence, "method.lora.rank": rank}
        for sequence in ("1024", "2048", "4096")
        for rank in ("8", "64")
    ]
    costs = [each["options"][0]["cost_dollars"] for each in found]
    assert costs[0] < costs[2] < costs[4]
    shown = tunec("choose", FIVE, *THREE, *sweeps).out
    head = next(line for line in shown.splitlines() if "data.sequence" in line)
    assert head.split()[:4] == ["data.sequence", "method.lora.rank", "clusters", "cluster"]


def test_every_fault_of_the_command_line_is_told_at_once_with_its_place(tunec, tmp_path):
    lists = tmp_path / "prices.yaml"
    lists.write_text("provider: lab\ndated: soon\nregions: {}\n")
    found = tunec(
        *("choose", FIVE, "--hardware", "p5.48xlage", "a10g-x", "--within", "12x"),
        *("--budget", "lots", "--region", "us-est-1", "--provider", "asw", "--prices", lists),
        *("--sweep", "data.sequence", "--set", "data.samples=x"),
    )
    assert (found.code, found.out) == (1, "")
    for told in (
        "error[E0304]: no list of prices is of a provider `asw`",
        "1 │ --provider asw\n  │            ^^^",
        "help: did you mean `aws`?",
        "error[E0305]: no list has prices of a region `us-est-1`",
        "error[E0306]: `--within`: `12x` is not a time",
        "help: write it as 12h, 90min or 2d",
        "error[E0306]: `--budget`: `lots` is not an amount of dollars",
        "error[E0306]: a sweep must have the form path=values",
        "error[E0306]: `data.samples`: `x` is not a count",
        "error[E0305]: no hardware is called `p5.48xlage`",
        "error[E0305]: no hardware is called `a10g-x`",
        f"{lists}:2:8",
        f"{lists}:3:10",
    ):
        assert told in found.err, told
    assert found.err.count("is not a count") == 1


def test_a_swept_value_that_cannot_be_is_told_once(tunec):
    found = tunec("choose", FIVE, *THREE, "--sweep", "data.sequense=1,2", "--format", "json")
    assert found.code == 1
    told = found.json["diagnostics"]
    assert {each["id"] for each in told} == {"E0301"}
    assert len(told) == 1


def test_a_spec_from_a_stream_is_read_once_for_several_clusters(tunec):
    end, start = os.pipe()
    os.write(start, Path(FIVE).read_bytes())
    os.close(start)
    found = tunec("choose", f"/dev/fd/{end}", *THREE, "--format", "json")
    os.close(end)
    assert (found.code, found.err) == (0, "")
    assert len(names(found.json["results"][0])) == 3


def test_a_spec_that_cannot_be_read_is_told_once(tunec, tmp_path):
    found = tunec("choose", tmp_path / "no.yaml", *THREE)
    assert found.code == 1
    assert found.err.count("error[E0201]") == 1


def test_a_spec_that_fits_nowhere_ends_with_1(tunec):
    found = tunec("choose", FIVE, "--hardware", "g4dn.xlarge", "p100-x1")
    assert found.code == 1
    assert "it fits none of these clusters" in found.out
    assert "2 do not fit:" in found.out
