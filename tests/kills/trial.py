"""One command killed at one step, judged, run again and judged again."""

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

from msgspec import Struct
from tests.kills.commands import Command, Files, faults_after_kill, faults_after_next
from tests.kills.steps import is_killed, steps_of


class Trial(Struct, frozen=True):
    """A command with what it writes from the old and from the new state of its input."""

    command: Command
    home: Path
    old: Files
    new: Files
    anew: int
    """Steps in which it writes where nothing is there."""
    over: int
    """Steps in which it writes over what the old state came to."""

    @classmethod
    def of(cls, command: Command, home: Path) -> "Trial":
        """Find out what a command writes, and in how many steps."""
        made = []
        for is_new in (False, True):
            folder = _empty(home / "clean")
            command.put(folder, is_new=is_new)
            with quiet():
                command.run(folder)
            made.append(command.written(folder))
        old, new = made
        assert old != new, command.name
        assert old, command.name
        assert new != {name: text.encode() for name, text in command.new.items()}, command.name
        trial = cls(command, home, old, new, 0, 0)
        counts = (steps_of(partial(command.run, trial.ready(over=over))) for over in (False, True))
        return cls(command, home, old, new, *counts)

    def ready(self, *, over: bool) -> Path:
        """A folder with the new input, beside what the old one came to, or nothing."""
        folder = _empty(self.home / "killed")
        if over:
            self.command.put(folder, is_new=False)
            with quiet():
                self.command.run(folder)
        self.command.put(folder, is_new=True)
        return folder

    def killed(self, step: int, *, over: bool) -> tuple[bool, list[str]]:
        """Kill at a step; whether it came so far, and what is wrong then or after the next run."""
        folder = self.ready(over=over)
        before = self.command.written(folder)
        was_killed = is_killed(partial(self.command.run, folder), step)
        return was_killed, [*self.torn(folder, before), *self.left(folder)]

    def torn(self, folder: Path, before: Files) -> list[str]:
        """What is wrong in a folder where the command did not come to its end."""
        is_in_place = self.command.writes in self.command.new
        old = before or self.old
        return faults_after_kill(self.command, folder, old, self.new, is_in_place=is_in_place)

    def left(self, folder: Path) -> list[str]:
        """What is wrong in a folder after one more run."""
        with quiet():
            self.command.run(folder)
        return faults_after_next(self.command, folder, self.new)


@contextmanager
def quiet() -> Iterator[None]:
    """Let nothing be printed."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
