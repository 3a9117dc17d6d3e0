"""A run without change believes files and directories that are older than the lock, no others."""

import os
import shutil
from pathlib import Path

import pytest
from tests.fleet.fleets import write_fleet

from tunec.compiler.fleet import tree as tree_module
from tunec.compiler.fleet.lock import LOCK, PART, fold_parts, header, is_own, lock_lines, tree_state

PAIR = "small/t4-x1"
CONFIG = f"{PAIR}/deepspeed/ds_config.json"


@pytest.fixture
def built(tmp_path, tunec) -> Path:
    tunec("fleet", write_fleet(tmp_path), "-o", tmp_path / "build")
    return tmp_path / "build"


@pytest.fixture
def again(built, tunec):
    """Builds again; gives what it says first, and which files it calls nobody's."""

    def run() -> tuple[str, list[str]]:
        building = ("fleet", built.parent / "fleet.yaml", "-o", built, "--overwrite")
        first, *lines = tunec(*building).err.splitlines()
        return first, [line.partition(":")[0] for line in lines if "belongs to no pair" in line]

    return run


FRESH = "12 pairs are up to date, 0 will be compiled"


def older(tree: Path) -> None:
    """Have the lock vouch for what lies there now, as if it had been written some time later."""
    mark = (tree / LOCK).stat().st_mtime_ns % 1_000_000
    later = max(each.stat().st_ctime_ns for each in tree.rglob("*")) // 1_000_000 + 5
    os.utime(tree / LOCK, ns=(later * 1_000_000 + mark,) * 2)


def test_no_directory_is_listed_where_files_lay_alone(built, again, monkeypatch):
    assert tree_state(built).are_alone
    older(built)
    listed: list[str] = []
    real = tree_module.os.scandir
    monkeypatch.setattr(tree_module.os, "scandir", lambda path: listed.append(path) or real(path))
    assert again() == (FRESH, [])
    assert not [path for path in listed if "small" in str(path)]


@pytest.mark.parametrize("where", [PAIR, f"{PAIR}/deepspeed", f"{PAIR}/deepspeed/deeper"])
def test_a_file_that_is_put_beside_them_is_found_each_time(built, again, where):
    (built / where).mkdir(exist_ok=True)
    (built / where / "left.txt").write_text("mine", "utf-8")
    for _ in range(2):
        assert again() == (FRESH, [f"{where}/left.txt"])
    (built / LOCK).touch()
    for _ in range(2):
        assert again() == (FRESH, [f"{where}/left.txt"])
    assert not tree_state(built).are_alone
    (built / where / "left.txt").unlink()
    assert again() == (FRESH, [])
    assert tree_state(built).are_alone


def test_a_file_left_beside_those_that_are_written_anew_is_found(built, again):
    (built / PAIR / "left.txt").write_text("mine", "utf-8")
    spec = built.parent / "specs/small.yaml"
    spec.write_text(spec.read_text("utf-8").replace("epochs: 1", "epochs: 2"), "utf-8")
    said = "8 pairs are up to date, 4 will be compiled"
    assert again() == (said, [f"{PAIR}/left.txt"])
    assert not tree_state(built).are_alone
    assert again() == (FRESH, [f"{PAIR}/left.txt"])


@pytest.mark.parametrize("is_older", [True, False])
def test_an_edited_file_is_found(built, again, is_older):
    if is_older:
        older(built)
    written = (built / CONFIG).read_bytes()
    times = (built / CONFIG).stat()
    (built / CONFIG).write_bytes(written.replace(b"1", b"2"))
    later = (built / LOCK).stat().st_mtime_ns + 1 if is_older else times.st_mtime_ns
    os.utime(built / CONFIG, ns=(later, later))
    assert again()[0] == "11 pairs are up to date, 1 will be compiled"
    assert (built / CONFIG).read_bytes() == written


def test_a_file_that_is_gone_is_found(built, again):
    older(built)
    (built / CONFIG).unlink()
    assert again()[0] == "11 pairs are up to date, 1 will be compiled"
    shutil.rmtree(built / PAIR)
    assert again()[0] == "11 pairs are up to date, 1 will be compiled"


def test_parts_of_several_processes_are_put_together(built):
    """As a build leaves them that was killed: each sorted, the last line of one torn."""
    lines = [line.text for line in lock_lines(built)]
    (built / LOCK).write_text(header("0") + "".join(lines[:2]), "utf-8")
    parts = {PART: lines[2:12:3], f"{PART}2": lines[3:12:3], f"{PART}3": lines[4:12:3]}
    parts[f"{PART}3"] = [*parts[f"{PART}3"], '{"spec":"torn","cl']
    for name, some in parts.items():
        (built / name).write_text(header("0") + "".join(some), "utf-8")
    fold_parts(built, "0")
    assert [line.text for line in lock_lines(built)] == lines
    assert [each.name for each in built.iterdir() if is_own(each.name)] == [LOCK]


def test_what_is_called_like_a_part_and_is_none_stays(built, again):
    names = (f"{PART}ial", f"{PART}.2", "tunec.lock.old")
    for name in names:
        assert not is_own(name)
        (built / name).write_text("mine", "utf-8")
    assert again() == (FRESH, sorted(names))
