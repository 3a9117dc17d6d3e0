"""The section about decisions: the tree of every slot, by group."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.driver import Planned
from tunec.compiler.ir.show import show
from tunec.compiler.ir.slots import GROUPS, SLOTS
from tunec.compiler.review.reasons import Branch, Reasons
from tunec.compiler.review.report.html import Element, tag
from tunec.compiler.review.report.page import Section, folded

_DEEPEST: Final = 2
"""Levels of slots inside a slot; what is deeper is a link to the slot's own place."""


def decisions_section(planned: Planned) -> Section:
    """Every decision that was made, with its reason and what it rests on."""
    reasons = Reasons(planned, _DEEPEST)
    groups = [each for each in (_group(planned, reasons, name) for name in GROUPS) if each]
    words = (
        "Each value with who decided it, why, and what it rests on; the name of a slot leads to "
        "its own place."
    )
    buttons = tag(
        "p",
        tag("button", "open all", type="button", data_open="all"),
        tag("button", "close all", type="button", data_open="none"),
        tag("label", "find ", tag("input", type="search", data_find="decisions")),
        tag("span", role="status", class_="found"),
        class_="controls script-only",
    )
    content = (tag("p", words), buttons, tag("div", groups, class_="tree"))
    return Section("decisions", "Decisions", content)


def _group(planned: Planned, reasons: Reasons, group: str) -> Element | None:
    slots = [
        path
        for path, slot in SLOTS.items()
        if slot.group == group and planned.ledger.winner(path) is not None
    ]
    if not slots:
        return None
    heading = tag(
        "h3", f"{group} ", tag("span", f"{len(slots)} slot{'s' * (len(slots) > 1)}", class_="quiet")
    )
    return folded(heading, [_slot(planned, reasons, path) for path in slots])


def _slot(planned: Planned, reasons: Reasons, path: str) -> Element:
    branch = reasons.of(path)
    winner = planned.ledger.winner(path)
    value = show(path, winner.value) if winner else ""
    summary: list[Element | str] = [tag("code", path), " = ", tag("strong", value)]
    below = tag("ul", _items(branch))
    return tag(
        "details",
        tag("summary", summary),
        tag("p", SLOTS[path].doc, class_="quiet"),
        below,
        id=_anchor(path),
        class_="slot",
    )


def _anchor(path: str) -> str:
    return f"slot-{path}"


def _items(branch: Branch) -> Iterator[Element]:
    for each in branch.below:
        below = tag("ul", _items(each)) if each.below else None
        yield tag("li", _line(each), below, class_=f"is-{each.kind}")


def _line(branch: Branch) -> list[Element | str]:
    if not branch.slot:
        return [tag("span", branch.text)]
    rest = branch.text.removeprefix(branch.slot)
    return [tag("a", tag("code", branch.slot), href=f"#{_anchor(branch.slot)}"), tag("span", rest)]
