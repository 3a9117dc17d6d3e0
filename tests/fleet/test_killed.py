"""A build killed at any moment leaves whole files and a true lock, and the next one finishes."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import pytest
from tests.fleet.fleets import write_fleet

from tunec.compiler.cli.main import run
from tunec.compiler.fleet.lock import LOCK, PART, exclusive, read_lock
from tunec.compiler.writing import COMPLETE, STAGED
from tunec.targets.registry import REGISTRY

KILLS = (60, pytest.param(220, marks=pytest.mark.nightly))
"""A build has twelve pairs and a dozen kinds of moments: the first hits each some five times."""
OLD, NEW = "epochs: 1", "epochs: 3"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to be quick")


def build(fleet: Path, tree: Path) -> None:
    with Path(os.devnull).open("w") as nowhere:
        out, err = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = nowhere
        try:
            run(["fleet", str(fleet), "-o", str(tree)], REGISTRY, "0")
        finally:
            sys.stdout, sys.stderr = out, err


def say(fleet: Path, text: str) -> None:
    for spec in (fleet.parent / "specs").iterdir():
        old = spec.read_text("utf-8")
        spec.write_text(old.replace(OLD if text == NEW else NEW, text), "utf-8")


def contents(tree: Path) -> dict[str, bytes]:
    found = (file for file in tree.rglob("*") if file.is_file())
    return {
        file.relative_to(tree).as_posix(): file.read_bytes()
        for file in found
        if LOCK not in file.name
        and not any(part.endswith((STAGED, COMPLETE)) for part in file.parts)
    }


def killed_build(fleet: Path, tree: Path, seconds: float) -> bool:
    """Whether the kill came before the end."""
    child = os.fork()
    if child == 0:
        build(fleet, tree)
        os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("kills", KILLS)
def test_killed_at_any_moment(tmp_path, kills):
    fleet = write_fleet(tmp_path)
    whole: dict[str, dict[str, bytes]] = {}
    for text in (OLD, NEW):
        say(fleet, text)
        start = time.perf_counter()
        build(fleet, tmp_path / f"clean-{text[-1]}")
        usual = time.perf_counter() - start  # of the second: a fork has loaded what the first loads
        whole[text] = contents(tmp_path / f"clean-{text[-1]}")
    tree, dice, hits = tmp_path / "build", random.Random(4), 0  # noqa: S311
    for at in range(kills):
        say(fleet, (OLD, NEW)[at % 2])
        if at % 9 == 4:
            shutil.rmtree(tree, ignore_errors=True)
        hits += killed_build(fleet, tree, dice.uniform(0, 1.1 * usual))
        for name, content in contents(tree).items():
            assert content in (whole[OLD][name], whole[NEW][name]), name
        for locked in read_lock(tree):
            folder = tree / locked.pair.spec / locked.pair.cluster
            for name, digest in locked.artifacts.items():
                assert sha256((folder / name).read_bytes()).hexdigest() == digest
    assert hits > kills / 4, "most builds ended before they were killed"
    build(fleet, tree)
    assert contents(tree) == whole[(OLD, NEW)[(kills - 1) % 2]]
    assert [f.name for f in tree.rglob(".*")] == []
    assert not (tree / PART).exists()
    assert len(list(read_lock(tree))) == 12


def test_an_interrupted_build_goes_on_where_it_was(tmp_path):
    fleet = write_fleet(tmp_path)
    tree = tmp_path / "build"
    command = [sys.executable, "-m", "tunec", "fleet", str(fleet), "-o", str(tree)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while not (tree / PART).exists() or (tree / PART).read_bytes().count(b"\n") < 4:
            assert process.poll() is None
        process.kill()
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    fresh = int(again.stderr.split()[0])
    assert fresh >= 3


def test_no_worker_outlives_a_killed_build(tmp_path):
    fleet = write_fleet(tmp_path)
    names = ", ".join(f"a100-80g-x{n}" for n in range(1, 25))
    text = fleet.read_text("utf-8").replace("[a100-80g-x8, a100-40g-x8", f"[{names}, a100-40g-x8")
    fleet.write_text(text, "utf-8")
    tree = tmp_path / "build"
    command = [sys.executable, "-m", "tunec", "fleet", str(fleet), "-o", str(tree), "-j", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while not (tree / PART).exists() or (tree / PART).read_bytes().count(b"\n") < 2:
            assert process.poll() is None
        process.kill()
    deadline = time.monotonic() + 20
    while is_alive(process.pid):
        assert time.monotonic() < deadline, "a worker is still there"
        time.sleep(0.1)
    with exclusive(tree):
        pass


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_builds_do_not_meet(tmp_path, tunec):
    fleet = write_fleet(tmp_path)
    with exclusive(tmp_path / "build"):
        result = tunec("fleet", fleet, "-o", tmp_path / "build")
    assert result.code == 2
    assert "another run is writing" in result.err
