"""The numbers behind a finding, as a table: names, amounts, and the total of bytes."""

from collections.abc import Iterator, Sequence
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.schemas.units import GIB, KIB, MIB

_BYTE_SCALES: Final = (("GiB", GIB, 2), ("MiB", MIB, 1), ("KiB", KIB, 1), ("B", 1, 0))


def sum_lines(terms: Sequence[Term]) -> Iterator[str]:
    """The lines of the table; the total of bytes: other numbers stand there to be compared."""
    rows = [(term.name, *_amount(term, terms)) for term in terms]
    if len(terms) > 1 and all(term.unit == "bytes" for term in terms):
        total = Term("total", sum(term.value for term in terms))
        rows.append((total.name, *_amount(total, terms)))
    names = max((len(name) for name, _, _ in rows), default=0)
    numbers = max((len(number) for _, number, _ in rows), default=0)
    for at, (name, number, unit) in enumerate(rows):
        if at == len(terms):
            yield "─" * (names + 2 + numbers)
        yield f"{name:<{names}}  {number:>{numbers}} {unit}".rstrip()


def _amount(term: Term, terms: Sequence[Term]) -> tuple[str, str]:
    """A number and its unit; bytes of one table are all told in the unit of the largest."""
    if term.unit != "bytes":
        return f"{term.value:,.6g}", term.unit
    largest = max(abs(each.value) for each in terms if each.unit == "bytes")
    unit, size, digits = next(
        (scale for scale in _BYTE_SCALES if largest >= scale[1]), _BYTE_SCALES[-1]
    )
    return f"{term.value / size:,.{digits}f}", unit
