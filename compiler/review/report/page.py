"""The frame of a page: head, landmarks, the list of its sections."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from msgspec import Struct

from tunec.compiler.review.report.html import Child, Element, render, script, style, tag


class Section(Struct, frozen=True):
    """A part of the page that the list at its top leads to."""

    id: str
    heading: str
    content: tuple[Child, ...]


class Frame(Struct, frozen=True):
    """What stands around the sections."""

    title: str
    subtitle: str
    verdict: str
    fits: bool
    facts: Sequence[tuple[str, str]]
    """What one wants to know first, by name."""
    footer: str


def page(frame: Frame, sections: Sequence[Section], extra: Sequence[Element] = ()) -> str:
    """A whole page as text; it needs nothing else and loads nothing."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{frame.title} — tunec report"),
        style(_asset("style.css")),
    )
    body = tag(
        "body",
        tag("a", "skip skip to the content", href="#content", class_="skip"),
        _hatch(),
        _header(frame),
        _navigation(sections),
        tag("main", map(_section, sections), id="content", tabindex=-1),
        tag("footer", tag("p", frame.footer)),
        extra,
        script(_asset("script.js")),
    )
    return f"<!doctype html>\n{render(tag('html', head, body, lang='en'))}\n"


@cache
def _asset(name: str) -> str:
    return files("tunec.compiler.review.report").joinpath(name).read_text("utf-8")


def _hatch() -> Element:
    """What the margin of a bar is filled with: stripes, since it holds nothing."""
    stripe = tag("path", d="M0 0V6", stroke="var(--hatch)", stroke_width=3)
    pattern = tag(
        "pattern",
        stripe,
        id="hatch",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
    return tag(
        "svg", tag("defs", pattern), width=0, height=0, class_="patterns", aria_hidden="true"
    )


def _header(frame: Frame) -> Element:
    facts = tag("dl", map(_fact, frame.facts), class_="facts")
    verdict = tag("p", frame.verdict, class_=f"verdict {'good' if frame.fits else 'bad'}")
    return tag("header", tag("h1", frame.title), tag("p", frame.subtitle), verdict, facts)


def _fact(fact: tuple[str, str]) -> Element:
    return tag("div", tag("dt", fact[0]), tag("dd", fact[1]))


def _navigation(sections: Sequence[Section]) -> Element:
    links = (tag("li", tag("a", each.heading, href=f"#{each.id}")) for each in sections)
    return tag("nav", tag("ul", links), aria_label="sections")


def _section(section: Section) -> Element:
    heading = tag("h2", section.heading, id=f"{section.id}-heading")
    return tag(
        "section", heading, *section.content, id=section.id, aria_labelledby=f"{section.id}-heading"
    )


def figure(content: Child, caption: Child, *more: Child) -> Element:
    """A chart with its caption, and what belongs to it."""
    return tag("figure", tag("figcaption", caption), content, *more)


def folded(summary: Child, *content: Child, is_open: bool = False) -> Element:
    """What can be opened."""
    return tag("details", tag("summary", summary), *content, open=is_open)
