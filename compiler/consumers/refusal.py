"""What a consumer refuses, told apart from what the machine or the script lacks.

Only the standard library is imported: the scripts that use this run in a consumer's environment.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

OURS: Final[tuple[type[BaseException], ...]] = (ImportError, NameError, RecursionError)
"""What this machine or this script lacks shows as one of these; it is no refusal of a file."""


class Refused(Exception):
    """The consumer would not take it: `stage` says at which step, `cause` is what it raised."""

    def __init__(self, stage: str, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.stage = stage
        self.cause = cause

    def told(self) -> dict[str, str]:
        """As an answer holds it."""
        return told(self.stage, self.cause)


def told(stage: str, cause: BaseException) -> dict[str, str]:
    """A refusal as an answer holds it."""
    return {"stage": stage, "type": type(cause).__name__, "message": str(cause)}


@contextmanager
def stage(name: str, ours: tuple[type[BaseException], ...] = OURS) -> Iterator[None]:
    """Turn what the consumer raises within into a Refused of that stage, but for `ours`."""
    try:
        yield
    except ours:
        raise
    except (Exception, SystemExit) as cause:
        raise Refused(name, cause) from cause
