"""Several processes build what one would, and what one of them meets is told."""

import math
import os
import signal
from pathlib import Path

import pytest
from tests.fleet.fleets import FLEET, write_fleet

from tunec.compiler.fleet import progress
from tunec.compiler.fleet.lock import LOCK, PART
from tunec.compiler.fleet.pair import Builder
from tunec.compiler.fleet.processes import _runs

MANY = FLEET.replace("[a100-80g-x8, a100-40g-x8", "[h100-*, a100-*, l40s-*")


@pytest.fixture
def fleet(tmp_path) -> Path:
    return write_fleet(tmp_path, MANY)


def files(tree: Path) -> dict[str, bytes]:
    found = (file for file in tree.rglob("*") if file.is_file())
    return {file.relative_to(tree).as_posix(): file.read_bytes() for file in found}


def test_two_processes_build_what_one_does(fleet, tunec, monkeypatch):
    monkeypatch.setattr(progress, "_PLAIN_SECONDS", math.inf)  # how fast they are may differ
    alone, together = (
        tunec("fleet", fleet, "-o", fleet.parent / f"build{jobs}", "-j", jobs) for jobs in (1, 2)
    )
    one, two = (files(fleet.parent / f"build{jobs}") for jobs in (1, 2))
    assert one == two
    assert one[LOCK].count(b"\n") > 3 * 32
    assert (alone.code, alone.out, alone.err) == (together.code, together.out, together.err)


def test_what_a_process_raises_is_told(fleet, tunec):
    tree = fleet.parent / "build"
    (tree / "small").mkdir(parents=True)
    (tree / "small/t4-x1").write_text("no directory", "utf-8")
    found = tunec("fleet", fleet, "-o", tree, "-j", 2)
    assert found.code == 2
    assert "small/t4-x1: Not a directory" in found.err
    (tree / "small/t4-x1").unlink()
    again = tunec("fleet", fleet, "-o", tree, "-j", 2)
    assert int(again.err.split()[0]) > 0, "what was done is not done again"
    assert not list(tree.glob(f"{PART}*"))


def test_a_process_that_is_killed_is_told(fleet, tunec, monkeypatch):
    parent, build = os.getpid(), Builder.build

    def killed(self, spec, site):
        if spec == "q" and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return build(self, spec, site)

    monkeypatch.setattr(Builder, "build", killed)
    found = tunec("fleet", fleet, "-o", fleet.parent / "build", "-j", 2)
    assert found.code == 2
    assert "a process of the build was ended: exit code -9" in found.err


def test_a_run_is_of_one_spec_and_none_is_left_out():
    sizes = {"a": 100, "b": 3, "c": 1000, "d": 41}
    pending = [(spec, None) for spec, size in sizes.items() for _ in range(size)]
    runs = list(_runs(pending, 2))
    assert [place for run in runs for place in run] == list(range(len(pending)))
    assert all(len({pending[place][0] for place in run}) == 1 for run in runs)
    assert max(map(len, runs)) <= len(pending) // 8
    assert min(map(len, runs)) == 3
