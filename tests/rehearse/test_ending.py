"""However a rehearsal ends, it leaves no process, no folder and no open port."""

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from tests.rehearse.specs import SPEC

pytestmark = [
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc"),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]


def started(tmp_path, *more, until="rank-1.pid"):
    """`tunec rehearse` with its folder in tmp_path, once a file is there."""
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    command = [sys.executable, "-m", "tunec", "rehearse", str(path), "--steps", "40", *more]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert waited(lambda: list(tmp_path.glob(f"tunec-rehearse-*/{until}")), 100)
    return process


def waited(is_so, seconds):
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def processes(folder):
    """Command lines of the processes that were told of the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = path.read_bytes(), path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if any(str(folder).encode() in each for each in words):
            found.append(words[1])
    return [each for each in found if each]


def left(tmp_path):
    return [*processes(tmp_path), *tmp_path.glob("tunec-rehearse-*")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_nothing(number, tmp_path):
    process = started(tmp_path)
    assert len(processes(tmp_path)) >= 5, "tunec, the keeper, the server, the launcher, the ranks"
    process.send_signal(number)
    process.wait(30)
    assert waited(lambda: not left(tmp_path), 30), left(tmp_path)


def test_a_killed_keeper_takes_the_ranks_along(tmp_path):
    process = started(tmp_path)
    folder = next(tmp_path.glob("tunec-rehearse-*"))
    keeper = next(
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"rehearse.keeper" in path.read_bytes() and str(folder).encode() in path.read_bytes()
    )
    os.kill(keeper, signal.SIGKILL)
    assert process.wait(60) == 1
    assert waited(lambda: not left(tmp_path), 30), left(tmp_path)


def test_libraries_that_take_too_long_to_load_are_ended(tmp_path):
    process = started(tmp_path, "--time-limit", "2", until="alive")
    assert process.wait(60) == 1
    assert waited(lambda: not left(tmp_path), 30), left(tmp_path)
