"""What hinders a command that writes is told, leaves nothing half done, and loses nothing."""

import errno
import os
import signal
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import gettempdir

import pytest
from tests.kills.commands import COMMANDS
from tests.kills.steps import ended
from tests.kills.trial import Trial, quiet

from tunec.compiler.writing import COMPLETE, STAGED

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to be quick")
each_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
NOBODY = 65534


def on_the_way(folder: Path) -> list[str]:
    return [each.name for each in folder.rglob("*") if each.name.endswith((STAGED, COMPLETE))]


@each_command
@pytest.mark.parametrize("after", [0, 2])
def test_a_full_disk(command, after, tmp_path, monkeypatch, capsys):
    trial = Trial.of(command, tmp_path)
    folder = trial.ready(over=True)
    before = command.written(folder)
    left, write = after if command.sets else 0, os.write

    def full(handle, content):
        nonlocal left
        left -= 1
        if left >= 0:
            return write(handle, content)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    code = command.run(folder)
    monkeypatch.undo()
    told = capsys.readouterr().err
    assert (code, "No space left on device" in told) == (2, True), told
    assert "Traceback" not in told
    assert STAGED not in told
    assert (command.written(folder), on_the_way(folder)) == (before, [])
    assert trial.left(folder) == []


@each_command
def test_a_folder_that_may_not_be_written_to(command, tmp_path):
    trial = Trial.of(command, tmp_path)
    folder = trial.ready(over=True)
    before = command.written(folder)
    every = [folder, *(each for each in folder.rglob("*") if each.is_dir())]
    for each in (tmp_path, *tmp_path.parents):
        if each == Path(gettempdir()):
            break
        each.chmod(each.stat().st_mode | 0o055)
    for each in every:
        each.chmod(0o555)
    told = tmp_path / "told"
    told.touch()
    told.chmod(0o666)

    def unprivileged() -> int:
        if os.geteuid() == 0:
            os.setegid(NOBODY)
            os.seteuid(NOBODY)
        with told.open("w") as stream, redirect_stderr(stream):
            return command.run(folder)

    _, status = os.waitpid(in_a_process(unprivileged), 0)
    for each in every:
        each.chmod(0o755)
    text = told.read_text("utf-8")
    assert os.waitstatus_to_exitcode(status) == 2, text
    assert "Permission denied" in text
    assert "Traceback" not in text
    assert (command.written(folder), on_the_way(folder)) == (before, [])
    assert trial.left(folder) == []


@each_command
def test_an_interrupt(command, tmp_path):
    """Ctrl-C at some steps: nothing is torn, and what was on the way is gone at once."""
    trial = Trial.of(command, tmp_path)
    for step in range(1, trial.over, max(trial.over // 8, 1)):
        folder = trial.ready(over=True)
        before = command.written(folder)
        code = ended(partial(command.run, folder), step, signal.SIGINT)
        assert code == 130, step
        assert trial.torn(folder, before) == [], step
        staged = [each for each in on_the_way(folder) if each.endswith(STAGED)]
        assert staged == [], step
        assert trial.left(folder) == [], step


def test_two_at_once(tmp_path):
    """Each writes its own set into one folder; whichever is last, that one is there, whole."""
    command, folder = COMMANDS[0], tmp_path / "both"
    calls, sets = [], []
    for name, texts in (("old", command.old), ("new", command.new)):
        spec = folder / name / "spec.yaml"
        spec.parent.mkdir(parents=True)
        spec.write_text(texts["spec.yaml"], "utf-8")
        calls.append(replace(command, words=("compile", f"{name}/spec.yaml", *command.words[2:])))
        with quiet():
            assert calls[-1].run(folder) == 0
        sets.append(command.written(folder))
    for _ in range(6):
        children = [in_a_process(partial(each.run, folder)) for each in calls]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert codes == [0, 0]
        assert command.written(folder) in sets
        assert on_the_way(folder) == []


def in_a_process(work: Callable[[], int]) -> int:
    """The number of a process that does some work in silence, and ends with its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with quiet():
                code = work()
        finally:
            os._exit(code)
    return child
