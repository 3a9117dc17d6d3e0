"""Tables: plain ones, and ones that a reader can sort."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from tunec.compiler.review.report.html import Child, Element, tag


class Column(Struct, frozen=True):
    """A column: its heading, and whether it holds numbers."""

    name: str
    is_number: bool = False


class Cell(Struct, frozen=True):
    """A cell whose place in an order is not that of its text."""

    content: Child
    value: float | str


Row = Sequence[Cell | Child]


def table(
    caption: str, columns: Sequence[Column], rows: Iterable[Row], *, sortable: bool = False
) -> Element:
    """A table whose first column names its rows; wide ones scroll, also by keyboard."""
    body = tag("tbody", (_row(columns, row) for row in rows))
    head = tag("thead", tag("tr", (_heading(each, sortable=sortable) for each in columns)))
    whole = tag(
        "table",
        tag("caption", caption),
        head,
        body,
        class_="sortable" if sortable else None,
    )
    return scrolling(caption, whole)


def scrolling(name: str, content: Element) -> Element:
    """A region that scrolls where what is in it is wider than the page."""
    return tag("div", content, class_="scrolls", role="region", aria_label=name, tabindex=0)


def _heading(column: Column, *, sortable: bool) -> Element:
    content: Child = column.name
    if sortable:
        content = tag("button", column.name, tag("span", aria_hidden="true"), type="button")
    return tag("th", content, scope="col", class_="number" if column.is_number else None)


def _row(columns: Sequence[Column], row: Row) -> Element:
    cells = [_cell(columns[at], cell, first=at == 0) for at, cell in enumerate(row)]
    return tag("tr", cells)


def _cell(column: Column, cell: Cell | Child, *, first: bool) -> Element:
    content, value = (
        (cell.content, _sortable(cell.value)) if isinstance(cell, Cell) else (cell, None)
    )
    class_ = "number" if column.is_number else None
    if first:
        return tag("th", content, scope="row", class_=class_, data_value=value)
    return tag("td", content, class_=class_, data_value=value)


def _sortable(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.9g}"
