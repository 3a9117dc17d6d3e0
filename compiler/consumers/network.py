"""Whether anything may be fetched, and how a fetch is announced.

Commands that fetch set this at their start; it applies to everything they call, in any thread.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct


class EnvironmentUnavailable(Exception):
    """A consumer is not available here, so nothing was checked; this is never a pass.

    `requirement` is the pinned requirement at fault, `reason` is the installer's message.
    """

    def __init__(self, requirement: str, reason: str) -> None:
        super().__init__(f"{requirement} cannot be had: {reason}")
        self.requirement = requirement
        self.reason = reason


class Network(Struct, frozen=True):
    """The network use that a command allows."""

    is_offline: bool = False
    announce: Callable[[str], None] = lambda _: None


_allowed = [Network()]


@contextmanager
def network(asked: Network) -> Iterator[None]:
    """Apply `asked` to all fetches inside the context."""
    _allowed.append(asked)
    try:
        yield
    finally:
        _allowed.pop()


def fetching(what: Sequence[str], origin: str, unlocked: Sequence[str] = ()) -> None:
    """Announce a fetch. Raises EnvironmentUnavailable if tunec is offline.

    `unlocked` lists the requirements that have no digest to be checked by.
    """
    if _allowed[-1].is_offline:
        raise EnvironmentUnavailable(what[0], "it is not on this machine, and --offline is set")
    unchecked = f"; not checked by a digest: {', '.join(unlocked)}" if unlocked else ""
    _allowed[-1].announce(f"fetching {', '.join(what)} from {origin}{unchecked}")
