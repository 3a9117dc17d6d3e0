"""Tells refusals by a consumer from faults of the machine or the script.

Only the standard library is imported: the scripts that use this run in a consumer's environment.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

OURS: Final[tuple[type[BaseException], ...]] = (ImportError, NameError, RecursionError)
"""Errors that show a fault of this machine or script; they are not refusals of a file."""


class Refused(Exception):
    """The consumer refused the file: `stage` is the step, `cause` the exception that it raised."""

    def __init__(self, stage: str, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.stage = stage
        self.cause = cause

    def told(self) -> dict[str, str]:
        """The refusal as an answer holds it."""
        return told(self.stage, self.cause)


def told(stage: str, cause: BaseException) -> dict[str, str]:
    """A refusal as an answer holds it."""
    return {"stage": stage, "type": type(cause).__name__, "message": str(cause)}


@contextmanager
def stage(name: str, ours: tuple[type[BaseException], ...] = OURS) -> Iterator[None]:
    """Turn the consumer's exceptions inside the context into Refused, except those in `ours`."""
    try:
        yield
    except ours:
        raise
    except (Exception, SystemExit) as cause:
        raise Refused(name, cause) from cause
