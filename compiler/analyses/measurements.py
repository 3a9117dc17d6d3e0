"""The results of measured runs on a cluster, in the form that the accounts take."""

from math import log
from typing import TYPE_CHECKING

from tunec.compiler.analyses.memory.workload import NOT_SEEN, SeenMargin
from tunec.compiler.analyses.time.account import TimeAccount
from tunec.compiler.analyses.time.pace import Pace, Seen, expected, scaled
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.terms import EDITION

if TYPE_CHECKING:
    from tunec.schemas.hardware.measurements import Measured


def pace_of(found: "Measured | None") -> Pace:
    """Factors on the seconds of a step; empty for runs of another edition of the time account."""
    if found is None or is_outdated(found):
        return ()
    return tuple(sorted(found.factors.items()))


def seen_of(found: "Measured | None") -> tuple[Seen, ...]:
    """The measured steps; empty for runs of another edition of the time account."""
    pace = pace_of(found)
    if found is None or is_outdated(found):
        return ()
    steps = [each.seconds for each in found.runs if each.seconds is not None]
    return tuple(
        Seen(each.accounted, log(each.measured / sum(scaled(each.accounted, pace).values())))
        for each in steps
    )


def as_ran(time: TimeAccount, found: "Measured | None") -> TimeAccount:
    """An account with the error that measured steps alike it had; the same object without any.

    For the forecast of a chosen layout alone: the search compares layouts by the plain account,
    since a layout that was measured would lose or win by that.
    """
    plain = time.accounted or time.terms
    factor = expected(plain, seen_of(found))
    if factor == 1:
        return time
    terms = {name: factor * seconds for name, seconds in time.terms.items()}
    return replace(time, terms=terms, accounted=plain)


def is_outdated(found: "Measured") -> bool:
    """Whether some run's terms are of another edition of the time account."""
    return any(each.seconds and each.seconds.edition != EDITION for each in found.runs)


def margin_of(found: "Measured | None") -> SeenMargin:
    """The margin that runs showed; the same object for equal margins."""
    if found is None:
        return NOT_SEEN
    known = found.margin
    return _margin(known.tensors, known.beside.get("one"), known.beside.get("several"))


@cached(256)
def _margin(tensors: float, one: int | None, several: int | None) -> SeenMargin:
    return SeenMargin(tensors, one, several)
