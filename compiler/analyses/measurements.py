"""The results of measured runs on a cluster, in the form that the accounts take."""

from typing import TYPE_CHECKING

from tunec.compiler.analyses.memory.workload import NOT_SEEN, SeenMargin
from tunec.compiler.analyses.time.pace import Pace
from tunec.schemas.caches import cached
from tunec.schemas.terms import EDITION

if TYPE_CHECKING:
    from tunec.schemas.hardware.measurements import Measured


def pace_of(found: "Measured | None") -> Pace:
    """Factors on the seconds of a step; empty for runs of another edition of the time account."""
    if found is None or is_outdated(found):
        return ()
    return tuple(sorted(found.factors.items()))


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
