"""The report in a real browser: nothing breaks, nothing is loaded, and the keyboard reaches all."""

from pathlib import Path

import pytest
from tests.review.browser import Browser, missing
from tests.review.reports import FITS, FIVE, LACKS, fleet, page_of, planned, written

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

NAMES = ("fits", "lacks", "fleet", "long", "many")


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    texts = {
        "fits": page_of(planned(FITS)),
        "lacks": page_of(planned(LACKS)),
        "crowd": page_of(planned(FIVE, "method=full", hardware="a100-40g-x8")),
        "fleet": fleet(6, 30),
        "long": fleet(30, 7, "-with-a-name-that-goes-on-for-longer-than-any-table-would-like"),
        "many": fleet(1, 1000),
    }
    return written(folder, texts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [360, 1280])
def test_page_is_sound_on_any_screen(chromium, pages, name, width):
    chromium.open(pages[name], width)
    assert chromium.log() == []
    assert chromium.js("return performance.getEntriesByType('resource').length") == 0
    assert chromium.js("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["fits", "lacks", "crowd"])
@pytest.mark.parametrize("width", [360, 700, 1280])
def test_texts_of_charts_do_not_cover_each_other(chromium, pages, name, width):
    chromium.open(pages[name], width)
    found = chromium.js("""
      const covering = [];
      for (const chart of document.querySelectorAll('svg.chart')) {
        const boxes = [...chart.querySelectorAll('text')]
          .map((text) => [text.textContent, text.getBoundingClientRect()])
          .filter(([, box]) => box.width > 0);
        boxes.forEach(([one, a], at) => {
          for (const [other, b] of boxes.slice(0, at)) {
            if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3
                && b.top < a.bottom - 3) covering.push([one, other]);
          }
          if (a.left < -1 || a.right > innerWidth + 1) covering.push([one, 'the edge']);
        });
      }
      return [document.querySelectorAll('svg.chart text').length, covering];
    """)
    assert found[0] > 10
    assert found[1] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_screen_reader_is_told_what_is_there(chromium, pages, name):
    chromium.open(pages[name])
    spoken = chromium.spoken()
    assert spoken[1] == ("link", "skip to the content")
    headings = [words for role, words in spoken if role == "heading"]
    regions = [words for role, words in spoken if role == "region"]
    links = [words for role, words in spoken if role == "link"]
    sections = [words for words in headings if words in regions]
    assert sections == links[1 : 1 + len(sections)], "the list at the top is in the page's order"
    assert len(sections) > 1
    named = {"image", "region", "table", "button", "combobox", "searchbox", "navigation", "link"}
    assert [role for role, words in spoken if role in named and not words] == []
    for role in ("DescriptionList", "list", "table"):
        after = [spoken[at + 1][0] for at, each in enumerate(spoken) if each[0] == role]
        assert role not in after
    if name == "fits":
        charts = [words for role, words in spoken if role == "image"]
        assert any(words.startswith("memory of a device by phase: budget") for words in charts)


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("fits", "light"), ("lacks", "dark"), ("fleet", "light"), ("fleet", "dark")],
)
def test_axe_finds_nothing(chromium, pages, name, scheme):
    chromium.open(pages[name], 1280, scheme)
    found = chromium.access_faults()
    assert found[0] > 10
    assert found[1] == []


def test_table_is_sorted_by_keyboard(chromium, pages):
    chromium.open(pages["fits"])
    chromium.js("document.querySelectorAll('#search .sortable th button')[2].focus()")
    assert chromium.focused() == "memory"
    chromium.press("Enter")
    column = """
      const table = document.querySelector('#search .sortable');
      return [table.tHead.rows[0].cells[2].getAttribute('aria-sort'),
              [...table.tBodies[0].rows].map((row) => Number(row.cells[2].dataset.value))];
    """
    direction, values = chromium.js(column)
    assert (direction, values) == ("ascending", sorted(values))
    assert len(set(values)) >= 3
    chromium.press("Enter")
    direction, values = chromium.js(column)
    assert (direction, values) == ("descending", sorted(values, reverse=True))


def shown_rows(chromium: Browser) -> list[str]:
    return chromium.js("""
      return [...document.getElementById('heat').tBodies[0].rows]
        .filter((row) => !row.hidden).map((row) => row.cells[0].textContent);
    """)


def test_heat_map_is_walked_and_sorted_by_keyboard(chromium, pages):
    chromium.open(pages["fleet"])
    chromium.js("document.getElementById('heat-fits').focus()")
    chromium.press("Tab")
    assert chromium.focused() == "cluster"
    chromium.press("Down", "Right", "Right")
    said = "return document.getElementById('heat-detail').textContent"
    assert chromium.js(said).startswith("spec-000 on cluster-0000")
    assert "10 GiB of 80 GiB (13 %)" in chromium.js(said)
    chromium.press("Control+End")
    assert chromium.js(said).startswith("spec-005 on cluster-0029")
    chromium.press("Control+Home")
    assert chromium.focused() == "cluster"
    chromium.press("Right", "Right", "Enter")
    heading = "return document.querySelectorAll('#heat thead th')[2].getAttribute('aria-sort')"
    assert chromium.js(heading) == "descending"
    values = chromium.js("""
      return [...document.getElementById('heat').tBodies[0].rows]
        .map((row) => row.cells[2].textContent);
    """)
    numbers = [int(each) for each in values if each != "no"]
    assert numbers == sorted(numbers, reverse=True)
    assert values[-1] == "no"
    chromium.press("Tab")
    inside = "return document.getElementById('heat').contains(document.activeElement)"
    assert chromium.js(inside) is False, "the table is one stop"


def test_heat_map_is_filtered(chromium, pages):
    chromium.open(pages["fleet"])
    assert len(shown_rows(chromium)) == 30
    chromium.write("#heat-rows", "cluster-001")
    assert shown_rows(chromium) == [f"cluster-{at:04}" for at in range(10, 20)]
    assert "10 of 30 clusters" in chromium.js(
        "return document.getElementById('heat-status').textContent"
    )
    chromium.write("#heat-columns", "spec-003")
    heads = "[...document.querySelectorAll('#heat thead th')]"
    assert chromium.js(f"return {heads}.filter((each) => each.checkVisibility()).length") == 3
    chromium.js("""
      const choice = document.getElementById('heat-fits');
      choice.value = 'none';
      choice.dispatchEvent(new Event('change'));
    """)
    assert shown_rows(chromium) == ["cluster-0014"]


@pytest.mark.parametrize("metric", ["tokens", "cost", "micro", "layout", "precision", "memory"])
def test_cells_show_each_measure(chromium, pages, metric):
    chromium.open(pages["fleet"])
    before = chromium.js("return document.getElementById('heat').tBodies[0].innerHTML")
    chromium.js(
        """
      const choice = document.getElementById('heat-metric');
      choice.value = arguments[0];
      choice.dispatchEvent(new Event('change'));
    """,
        metric,
    )
    after = chromium.js("return document.getElementById('heat').tBodies[0].innerHTML")
    assert (after == before) == (metric == "memory")
    assert "NaN" not in after
    assert "undefined" not in after
    assert chromium.log() == []


def test_decisions_are_found_opened_and_linked(chromium, pages):
    chromium.open(pages["fits"])
    slots = "[...document.querySelectorAll('.slot')]"
    count = f"return {slots}.filter((each) => each.checkVisibility()).length"
    assert chromium.js(count) == 0
    chromium.write("[data-find]", "zero.stage")
    assert 0 < chromium.js(count) < 40
    chromium.js("location.hash = '#slot-devices.budget'")
    slot = "document.getElementById('slot-devices.budget')"
    assert chromium.js(f"return [{slot}.open, {slot}.checkVisibility()]") == [True, True]
    assert chromium.focused().startswith("devices.budget = ")


def test_printing_shows_tables_and_leaves_the_page_as_it_was(chromium, pages):
    chromium.open(pages["fits"])
    opened = "return document.querySelectorAll('details[open]').length"
    chromium.js("dispatchEvent(new Event('beforeprint'))")
    assert chromium.js(opened) > 10
    chromium.js("dispatchEvent(new Event('afterprint'))")
    assert chromium.js(opened) == 0
    assert chromium.pdf().startswith(b"%PDF")


def test_without_scripts_everything_is_there(chromium, pages):
    chromium.cdp("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(pages["fleet"])
        tree = chromium.cdp("DOMSnapshot.captureSnapshot", computedStyles=["display"])
        texts = [text for each in tree["documents"][:1] for text in tree["strings"]]
        assert "cluster-0029" in texts
        assert any("nothing fits" in text for text in texts)
    finally:
        chromium.cdp("Emulation.setScriptExecutionDisabled", value=False)
