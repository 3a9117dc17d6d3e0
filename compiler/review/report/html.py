"""Elements of a page as data; all text is escaped where it is written, so that none can forget."""

import json
from collections.abc import Callable, Iterable
from html import escape
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.source_lines import printable

_VOID: Final = frozenset({"col", "input", "link", "meta"})
"""Elements of HTML without an end tag that are used here (HTML Living Standard, 13.1.2)."""


class Element(Struct, frozen=True):
    """One element: its attributes and what is inside."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple["Element | str", ...]
    is_source: bool = False
    """Whether the text inside is a style, a script or its data, which is not escaped."""


Child = Element | str | None | Iterable["Element | str | None"]
Attribute = str | int | float | bool | None


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Element:
    """An element; `class_` is written `class`, `aria_label` `aria-label`, True without a value.

    What is None or False is left out; iterables of children are joined.
    """
    given = tuple((_name(key), _value(value)) for key, value in attributes.items() if _is(value))
    return Element(name, given, tuple(_flat(children)))


def named(name: str) -> Callable[..., Element]:
    """A function that makes elements of one name."""

    def make(*children: Child, **attributes: Attribute) -> Element:
        return tag(name, *children, **attributes)

    return make


def style(source: str) -> Element:
    """A style sheet. ValueError if it could end its element."""
    return _source("style", source)


def script(source: str) -> Element:
    """A script. ValueError if it could end its element."""
    return _source("script", source)


def data(name: str, value: Any) -> Element:
    """A value for a script to read, as JSON that cannot end its element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    return _source("script", text, ("type", "application/json"), ("id", name))


def render(element: Element) -> str:
    """The text of an element with all that is in it."""
    parts: list[str] = []
    _write(element, parts)
    return "".join(parts)


def number(value: float) -> str:
    """A coordinate, to two digits, without needless zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _source(name: str, source: str, *attributes: tuple[str, str]) -> Element:
    if f"</{name}" in source.lower() or "<!--" in source:
        raise ValueError(f"the text of a {name} element would end it")
    return Element(name, attributes, (source,), is_source=True)


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _is(value: Attribute) -> bool:
    return value is not None and value is not False


def _value(value: Attribute) -> str:
    if value is True:
        return ""
    return number(value) if isinstance(value, float) else str(value)


def _flat(children: Iterable[Child]) -> Iterable[Element | str]:
    for child in children:
        if isinstance(child, Element | str):
            yield child
        elif child is not None:
            yield from (each for each in child if each is not None)


def _write(element: Element, parts: list[str]) -> None:
    parts.append(f"<{element.name}")
    parts.extend(_attribute(*each) for each in element.attributes)
    parts.append(">")
    if element.name in _VOID:
        return
    for child in element.children:
        if isinstance(child, Element):
            _write(child, parts)
        else:
            parts.append(child if element.is_source else _text(child))
    parts.append(f"</{element.name}>")


def _attribute(name: str, value: str) -> str:
    return f' {name}="{escape(_shown(value))}"' if value else f" {name}"


def _text(text: str) -> str:
    return escape(_shown(text), quote=False)


def _shown(text: str) -> str:
    """The text with control characters made visible; line feeds stay."""
    if text.isprintable():
        return text
    return "\n".join(printable(line) for line in text.split("\n"))
