"""Progress of what takes long: a living line on a terminal, a plain one now and then elsewhere."""

import time
from collections.abc import Callable
from typing import Final, TextIO

from msgspec import Struct

_TERMINAL_SECONDS: Final = 0.2
_PLAIN_SECONDS: Final = 10.0


class Progress(Struct):
    """Counts what is done and says rate and remaining time."""

    total: int
    stream: TextIO
    what: str = "pairs"
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    _start: float = 0.0
    _said: float = 0.0

    def __post_init__(self) -> None:
        """Start the clock."""
        self._start = self._said = self.clock()

    def step(self) -> None:
        """One more is done."""
        self.done += 1
        now = self.clock()
        often = _TERMINAL_SECONDS if self.stream.isatty() else _PLAIN_SECONDS
        if now - self._said >= often:
            self._said = now
            self._say(self._line(now))

    def end(self) -> None:
        """Leave the terminal's line as it was."""
        if self.stream.isatty():
            self.stream.write("\r\x1b[K")

    def _line(self, now: float) -> str:
        rate = self.done / max(now - self._start, 1e-9)
        left = (self.total - self.done) / rate if rate else 0.0
        done = f"{self.done:,} of {self.total:,} {self.what}"
        return f"{done}, {rate:,.0f} a second, {_clock(left)} left"

    def _say(self, line: str) -> None:
        self.stream.write(f"\r\x1b[K{line}" if self.stream.isatty() else f"{line}\n")
        self.stream.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
    )
