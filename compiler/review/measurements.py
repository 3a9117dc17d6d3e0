"""The results of measured runs on a plan's cluster, as text."""

from math import expm1

from tunec.compiler.analyses.measurements import is_outdated
from tunec.compiler.driver import Planned
from tunec.schemas.hardware.measurements import Measured
from tunec.schemas.units import format_bytes


def measured_of(planned: Planned) -> Measured | None:
    """The results of measured runs on the plan's cluster; None if there are none."""
    return planned.facts.cluster.measured if planned.facts is not None else None


def measured_lines(planned: Planned) -> list[str]:
    """How the accounts use the measured runs; empty if there are none."""
    found = measured_of(planned)
    return [] if found is None else [head(found), *margin_lines(found)]


def in_short(found: Measured) -> str:
    """A phrase with the number of runs, and the time account's error before and after them."""
    number = len(found.runs)
    runs = f"time and margin by {number} measured run{'' if number == 1 else 's'}"
    if is_outdated(found):
        return f"{runs} of an older time account: not used for time; calibrate them again"
    if found.error is None:
        return runs
    before, after = (f"{expm1(each):.0%}" for each in (found.error.before, found.error.after))
    return f"{runs}, from which the account was {before} off and is {after}"


def head(found: Measured) -> str:
    """The runs, and the factors by which they multiply the account's seconds."""
    if is_outdated(found):
        return in_short(found)
    factors = ", ".join(f"{name} x {factor:.2f}" for name, factor in found.factors.items())
    return f"{in_short(found)}: {factors or 'no time known'}"


def margin_lines(found: Measured) -> list[str]:
    """The memory that the runs needed beyond the memory account."""
    lines = []
    if found.margin.tensors > 1:
        lines.append(f"tensors: up to {found.margin.tensors:.3f} times what is accounted for")
    for ranks, size in found.margin.beside.items():
        what = f"a run of {ranks} process{'es' if ranks == 'several' else ''}"
        lines.append(f"outside the allocator: {format_bytes(size)} in {what}")
    return lines
