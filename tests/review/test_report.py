"""The report's page as text: whole, deterministic, safe, readable without a browser."""

import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from tests.review.reports import FITS, HOSTILE, LACKS, fleet, page_of, planned

from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.review.candidates import considerations
from tunec.compiler.review.report.html import (
    data,
    inside,
    linear,
    render,
    script,
    spanning,
    style,
    tag,
)
from tunec.compiler.review.report.scatter import (
    _WIDTHS,
    Point,
    _labelled,
    _merged,
    _overlap,
    _Placed,
)
from tunec.compiler.review.report.sections import coloured
from tunec.schemas.units import GIB

VOID = {"col", "input", "link", "meta"}


class Reading(HTMLParser):
    """Elements with their attributes; complains of tags that do not close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {
        "fits": page_of(planned(FITS)),
        "lacks": page_of(planned(LACKS)),
        "fleet": fleet(5, 9),
        "one": fleet(1, 1),
    }


@pytest.mark.parametrize("name", ["fits", "lacks", "fleet", "one"])
def test_page_is_whole_and_loads_nothing(pages, name):
    text = pages[name]
    found = Reading(text).found
    assert text.startswith('<!doctype html>\n<html lang="en">')
    names = [tag for tag, _ in found]
    assert {names.count(each) for each in ("h1", "main", "nav", "header", "footer")} == {1}
    assert not {"link", "img", "iframe", "object", "base"} & set(names)
    assert not re.search(r"https?://|url\((?!#)|@import|fetch\(|XMLHttpRequest", text)
    assert all("src" not in given for _, given in found)
    links = [given["href"] for tag, given in found if tag == "a"]
    ids = [given["id"] for _, given in found if "id" in given]
    assert len(ids) == len(set(ids))
    assert links
    assert {link.removeprefix("#") for link in links} <= set(ids)


def test_page_of_a_plan_has_every_slot_every_phase_and_every_layout(pages):
    text = pages["fits"]
    result = planned(FITS)
    assert all(f'id="slot-{slot}"' in text for slot in SLOTS)
    assert all(f">{phase}" in text for phase in result.memory.phases)
    assert all(f">{term}<" in text for term in result.memory.terms)
    assert all(f">{term}<" in text for term in result.time.terms)
    assert "chosen: the fastest of" in text
    assert "% slower" in text
    assert 'data-column="result"' in text


def test_a_layout_is_as_much_slower_as_its_step_is_longer():
    layouts = considerations(planned(FITS)).layouts
    (chosen,) = [each for each in layouts if each.state == "chosen"]
    told = {each.name: each for each in layouts if "% slower" in each.why}
    assert told
    for each in told.values():
        slower = float(re.search(r"([\d.]+)% slower", each.why)[1])
        ratio = chosen.samples_per_second / each.samples_per_second
        assert slower == pytest.approx(100 * (ratio - 1), abs=0.06), each.name


def test_page_tells_what_the_user_set_apart(pages):
    text = pages["fits"]
    own = text[text.index("You set") : text.index("All decisions")]
    assert 'href="#slot-data.sequence"' in own
    assert 'href="#slot-zero.stage"' not in own


def test_page_of_what_does_not_fit_says_why(pages):
    text = pages["lacks"]
    assert "there is no plan" in text
    assert "needs 73.1 GiB of 27.0 GiB host memory" in text
    assert "E0701" in text
    assert text.index('id="diagnostics"') < text.index('id="search"')
    assert "unlimited memory:</p><pre>--set " in text
    assert "is chosen" not in text


def test_page_of_what_cannot_be_read_has_its_faults(tmp_path):
    (tmp_path / "spec.yaml").write_text("tunec: 1\nmodle: llama-3.1-8b\n", "utf-8")
    text = page_of(planned(tmp_path / "spec.yaml"))
    Reading(text)
    assert "modle" in text
    assert 'id="search"' not in text


def test_bytes_are_the_same_each_time(pages):
    assert page_of(planned(FITS)) == pages["fits"]
    assert fleet(5, 9) == pages["fleet"]


def test_text_of_a_spec_or_a_fleet_stays_text():
    text = fleet(2, 3, HOSTILE)
    found = Reading(text).found
    assert [name for name, _ in found].count("script") == 2
    assert not {"b", "alert"} & {name for name, _ in found}
    assert "\u202e" not in text
    again = page_of(planned(FITS, f"name={HOSTILE}", f"train.output={HOSTILE}"))
    assert "<script>alert" not in again
    assert "onload='x'" not in re.sub(r"&lt;.*?&gt;", "", again)


def test_elements_are_escaped_whatever_they_hold():
    element = tag("p", "<&>", tag("b", '"'), title='"<', hidden=True, lang=None, at=1.50)
    assert render(element) == ('<p title="&quot;&lt;" hidden at="1.5">&lt;&amp;&gt;<b>"</b></p>')
    assert "</script" not in render(data("x", ["</script>"]))[:-9]
    for make, text in ((style, "a{}</style>"), (script, "'</SCRIPT>'"), (script, "<!--")):
        with pytest.raises(ValueError, match="would end it"):
            make(text)


@pytest.mark.parametrize("most", [1e-6, 0.3, 1, 7, 99.9, 1234, 5e9])
@pytest.mark.parametrize("binary", [False, True])
def test_linear_axes_are_round_and_long_enough(most, binary):
    scale = linear(most, binary=binary)
    assert scale.high >= most * (1 - 1e-9)
    assert 2 <= len(scale.ticks) <= 6
    assert scale(0) == 0
    assert scale(scale.high) == pytest.approx(100)
    assert inside(most)(most) == 100


@pytest.mark.parametrize("amounts", [[5, 6], [1, 50], [0.001, 40], [3, 3], [1, 9000]])
def test_axes_hold_what_they_are_made_for(amounts):
    scale = spanning([each * GIB for each in amounts], unit=GIB, binary=True)
    assert all(0 <= scale(each * GIB) <= 100 for each in amounts)
    assert scale.is_log == (amounts[1] / amounts[0] >= 8)
    assert 2 <= len(scale.ticks) <= 7


def test_labels_of_a_crowd_do_not_cover_each_other():
    crowd = [
        _Placed(Point(f"{at}", "", 1, 1, "fits"), 30 + at % 5 * 6.1, 60 + at // 5 * 41.0)
        for at in range(25)
    ]
    placed = _labelled(_merged(crowd))
    assert len(placed) == 25
    for width in _WIDTHS:
        boxes = [each.box(width) for each in placed]
        pairs = [(a, b) for at, a in enumerate(boxes) for b in boxes[:at]]
        assert not any(_overlap(*pair) for pair in pairs)


def test_marks_in_one_place_are_one_with_both_numbers():
    same = [_Placed(Point(label, "", 1, 1, "fits"), 30, 60) for label in ("1", "2")]
    assert [each.point.label for each in _merged(same)] == ["1, 2"]


def test_marks_without_a_label_are_one_without_a_label():
    same = [_Placed(Point("", "", 1, 1, "fits"), 30, 60) for _ in range(2)]
    (one,) = _labelled(_merged(same))
    assert (one.point.label, one.dx, one.dy) == ("", 0, 0)


def test_a_term_has_one_colour_in_all_bars():
    found = coloured([{f"t{at}": at + 1 for at in range(12)}, {"t0": 100, "margin: x": 500}])
    assert found["t0"] == "c1"
    assert sorted(found.values()) == ["c0", *(f"c{at}" for at in range(1, 9)), "cm"]


# ── colours ──────────────────────────────────────────────────────────────────────────────────────

CSS = files("tunec.compiler.review.report").joinpath("style.css").read_text("utf-8")
TEXTS = [
    *((ink, sheet) for ink in ("ink", "quiet", "link") for sheet in ("paper", "sheet")),
    *(("good", "good-sheet"), ("bad", "bad-sheet"), ("bad", "paper"), ("warn", "paper")),
    *(("limit", "paper"), ("ink", "mark"), ("on-none", "none")),
    *((f"on-q{at}", f"q{at}") for at in range(8)),
]
SHAPES = [(name, "paper") for name in ("edge", "focus", "chosen", "fits", "short", "host", "hatch")]


def variables(scheme: str) -> dict[str, str]:
    """Colours of a scheme: dark and print stand in rules of their own."""
    light, dark = CSS.split("@media (prefers-color-scheme: dark)")
    printed = dark.split("@media print")[1]
    part = {"light": light, "dark": dark.split("@media")[0], "print": printed}[scheme]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part))


def contrast(one: str, other: str) -> float:
    """Web Content Accessibility Guidelines 2.2, definitions of contrast and luminance."""

    def luminance(colour: str) -> float:
        shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_colours_contrast_as_wcag_aa_asks(scheme):
    colours = {**variables("light"), **variables(scheme)}
    weak = {p: contrast(colours[p[0]], colours[p[1]]) for p in TEXTS}
    assert {pair: at for pair, at in weak.items() if at < 4.5} == {}
    weak = {p: contrast(colours[p[0]], colours[p[1]]) for p in SHAPES}
    assert {pair: at for pair, at in weak.items() if at < 3} == {}


def test_text_in_bars_contrasts():
    fills = dict(re.findall(r"^\.(c\d) \{ fill: (#[0-9a-f]{6})", CSS, re.MULTILINE))
    assert len(fills) == 9
    inks = {name: "#ffffff" if name == "c1" else "#10161d" for name in fills}
    assert all(contrast(fills[name], ink) >= 4.5 for name, ink in inks.items())


def test_the_chosen_layout_is_drawn_over_those_beside_it(pages):
    marks = re.findall(r'class="point">.*?"m-(\w+)"', pages["fits"], re.DOTALL)
    assert len(marks) > 1
    assert (marks.count("chosen"), marks[-1]) == (1, "chosen")


def test_what_became_of_one_layout_is_told_of_one(pages):
    (words,) = re.findall(r"layouts were considered: (.*?)\.", pages["lacks"])
    assert words.startswith("1 needs more memory than")
