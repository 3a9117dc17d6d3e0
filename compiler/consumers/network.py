"""Whether anything may be fetched, and who is told of it before it is.

Commands that fetch say so at their start; whatever they ask, in whichever thread, holds to it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct


class EnvironmentUnavailable(Exception):
    """A consumer cannot be had here, so nothing was checked; never the same as a pass.

    `requirement` is the pinned requirement at fault, `reason` is what the installer said of it.
    """

    def __init__(self, requirement: str, reason: str) -> None:
        super().__init__(f"{requirement} cannot be had: {reason}")
        self.requirement = requirement
        self.reason = reason


class Network(Struct, frozen=True):
    """What a command allows."""

    is_offline: bool = False
    announce: Callable[[str], None] = lambda _: None


_allowed = [Network()]


@contextmanager
def network(asked: Network) -> Iterator[None]:
    """Hold all that is fetched meanwhile to what is asked."""
    _allowed.append(asked)
    try:
        yield
    finally:
        _allowed.pop()


def fetching(what: Sequence[str], origin: str, unlocked: Sequence[str] = ()) -> None:
    """Say what is about to be fetched. Raises EnvironmentUnavailable where nothing may be.

    `unlocked` is what has no digest to be checked by.
    """
    if _allowed[-1].is_offline:
        raise EnvironmentUnavailable(what[0], "it is not on this machine, and --offline is set")
    unchecked = f"; not checked by a digest: {', '.join(unlocked)}" if unlocked else ""
    _allowed[-1].announce(f"fetching {', '.join(what)} from {origin}{unchecked}")
