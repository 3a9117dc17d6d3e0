"""The page of a choice: whole, loading nothing, with every number and every source."""

import re

import pytest
from tests.review.test_report import Reading

from tunec.compiler.analyses.time.account import MARGIN, OFF

FIVE = "examples/five-lines/spec.yaml"
THREE = ("--hardware", "p5.48xlarge", "g5.2xlarge", "g2-standard-96", "h100-sxm-x8", "g4dn.xlarge")


@pytest.fixture
def page(tunec, tmp_path):
    def made(*arguments):
        file = tmp_path / "choose.html"
        found = tunec("choose", FIVE, *THREE, *arguments, "-o", file)
        assert (found.code, found.err) == (0, "")
        assert found.out.startswith("spec: ")
        return file.read_text("utf-8")

    return made


@pytest.mark.parametrize(
    "arguments", [(), ("--sweep", "data.sequence=1k..4k"), ("--within", "2h", "--by", "time")]
)
def test_the_page_is_whole_and_loads_nothing(page, arguments):
    text = page(*arguments)
    found = Reading(text).found
    names = [tag for tag, _ in found]
    assert {names.count(each) for each in ("h1", "main", "nav", "header", "footer")} == {1}
    assert not re.search(r"https?://|url\((?!#)|@import|fetch\(|XMLHttpRequest", text)
    ids = [given["id"] for _, given in found if "id" in given]
    assert len(ids) == len(set(ids))
    assert text == page(*arguments)


def test_it_has_the_front_every_option_and_the_sources(page):
    text = page()
    for said in (
        "g5.2xlarge: 7.5 h, $9.05",
        "$55.04"[1:],
        "aws us-east-1",
        "no price",
        "g4dn.xlarge",
        "nothing fits: the smallest layout needs",
        "aws, 2026-07-20",
        "gcp, 2026-08-03",
        "aws/karpenter-provider-aws@",
        f"{OFF}; the margin is {MARGIN:.0%}",
    ):
        assert said in text, said
    assert text.count('class="m-chosen"') >= 2


def test_what_misses_a_limit_is_on_it_with_the_reason(page):
    text = page("--within", "2h")
    assert "which take longer than 2.0 h; the fastest, g5.2xlarge, takes 7.5 h" in text


def test_a_sweep_has_a_row_for_each_combination(page):
    text = page("--sweep", "data.sequence=1k..4k", "--sweep", "method.lora.rank=8,64")
    table = text.split("<caption>Combinations of values</caption>")[1].split("</table>")[0]
    assert table.split("<tbody>")[1].count("<tr>") == 6
    assert "data.sequence=2048, method.lora.rank=8, p5.48xlarge" in text


def test_the_page_can_go_to_stdout(tunec):
    found = tunec("choose", FIVE, *THREE, "-o", "-")
    assert found.out.startswith("<!doctype html>")
    assert "cheapest first, within" not in found.out


def test_what_a_spec_is_called_is_escaped(tunec, tmp_path):
    file = tmp_path / "choose.html"
    spec = tmp_path / "spec.yaml"
    data = "{train: train.jsonl, sequence: 2048}"
    spec.write_text(
        f"tunec: 1\nmodel: llama-3.1-8b\nmethod: lora\ndata: {data}\nhardware: p100-x1\n"
    )
    assert tunec("choose", spec, *THREE, "--sweep", "data.train=<b>.jsonl,x", "-o", file).code == 0
    text = file.read_text("utf-8")
    assert "<b>" not in text
    assert "&lt;b&gt;.jsonl" in text
