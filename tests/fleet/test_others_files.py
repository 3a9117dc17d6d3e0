"""A tree beside what is not the fleet's: nothing of it is taken, removed or believed."""

import os
from pathlib import Path

import pytest
from tests.fleet.fleets import SPEC

from tunec.compiler.fleet.lock import LOCK

FLEET = "fleet: 1\nspecs: specs/*.yaml\nclusters: [a100-80g-x8, t4-x1]\ntargets: [deepspeed]\n"
CONFIG = "small/t4-x1/deepspeed/ds_config.json"


@pytest.fixture
def fleet(tmp_path) -> Path:
    (tmp_path / "specs").mkdir()
    spec = SPEC.format(model="llama-3.2-1b", method="lora", sequence=512)
    (tmp_path / "specs/small.yaml").write_text(spec, "utf-8")
    (tmp_path / "fleet.yaml").write_text(FLEET, "utf-8")
    return tmp_path / "fleet.yaml"


@pytest.fixture
def tree(fleet, tunec) -> Path:
    assert tunec("fleet", fleet, "-o", fleet.parent / "build").code == 0
    return fleet.parent / "build"


def said(tunec, fleet, tree) -> tuple[str, str]:
    """What --check says, and the first line of the build that comes after it."""
    checked = tunec("fleet", fleet, "-o", tree, "--check").out
    return checked, tunec("fleet", fleet, "-o", tree, "--overwrite").err.splitlines()[0]


@pytest.mark.parametrize("folder", [".", "specs"])
def test_a_folder_with_the_specs_is_no_tree(fleet, tunec, folder):
    found = tunec("fleet", fleet, "-o", fleet.parent / folder, "--prune")
    assert found.code == 2
    assert "one of the fleet's own inputs, is in it" in found.err
    assert (fleet.parent / "specs/small.yaml").is_file()


def test_a_folder_that_is_no_tree_is_not_pruned(fleet, tunec, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/letter.txt").write_text("dear", "utf-8")
    found = tunec("fleet", fleet, "-o", tmp_path / "home", "--prune")
    assert found.code == 2
    assert "it has no tunec.lock" in found.err
    assert [each.name for each in (tmp_path / "home").iterdir()] == ["letter.txt"]


def test_a_repository_s_own_files_are_no_orphans(fleet, tree, tunec):
    (tree / ".git").mkdir()
    for name in (".git/HEAD", ".gitattributes", "left.txt"):
        (tree / name).write_text("ref", "utf-8")
    assert tunec("fleet", fleet, "-o", tree, "--check").out == "left.txt: orphan\n"
    assert tunec("fleet", fleet, "-o", tree, "--prune").code == 0
    assert [(tree / name).exists() for name in (".git/HEAD", "left.txt")] == [True, False]


def test_a_lock_that_was_checked_out_vouches_for_no_file(fleet, tree, tunec):
    """As `git checkout` leaves them: the lock is the younger one, and the file is another."""
    written = (tree / CONFIG).read_bytes()
    (tree / CONFIG).write_bytes(written + b" ")
    (tree / LOCK).write_bytes((tree / LOCK).read_bytes())
    os.utime(tree / LOCK, ns=(2_000_000_000_123_456_789,) * 2)
    checked, built = said(tunec, fleet, tree)
    assert checked == f"{CONFIG}: edited (differs from what was written)\n"
    assert built == "1 pairs are up to date, 1 will be compiled"
    assert (tree / CONFIG).read_bytes() == written


def cut(lines):
    return [*lines[:-1], lines[-1][:200]]


def unsaid(lines):
    return [*lines[:-1], lines[-1].replace('"inputs":{"spec"', '"inputs":{"spek"')]


def swapped(lines):
    return [lines[0], lines[2], lines[1]]


@pytest.mark.parametrize("spoil", [cut, unsaid, swapped])
def test_a_lock_edited_by_hand_says_less_and_is_mended(fleet, tree, tunec, spoil):
    lines = (tree / LOCK).read_text("utf-8").splitlines()
    (tree / LOCK).write_text("\n".join(spoil(lines)) + "\n", "utf-8")
    checked, built = said(tunec, fleet, tree)
    assert "not built" in checked
    assert built == "1 pairs are up to date, 1 will be compiled"
    assert (tree / LOCK).read_text("utf-8").splitlines() == lines


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("specs/*.yaml", "[]", "the fleet selects no specs"),
        ("[a100-80g-x8, t4-x1]", "{include: t4-x1, exclude: '*'}", "the fleet selects no clusters"),
    ],
)
def test_a_fleet_of_nothing_is_told(fleet, tunec, old, new, message):
    fleet.write_text(FLEET.replace(old, new), "utf-8")
    found = tunec("fleet", fleet, "-o", fleet.parent / "build")
    assert found.code == 1
    assert message in found.err


def test_what_is_refused_is_not_said_to_be_too_large(fleet, tunec):
    fleet.write_text(FLEET.replace("deepspeed]", "deepspeed@0.18, deepspeed@0.19]"), "utf-8")
    found = tunec("fleet", fleet, "-o", fleet.parent / "build")
    assert found.code == 1
    assert "refused" in found.out
    assert "does not fit" not in found.out


def test_a_spec_is_not_called_like_the_lock(fleet, tunec):
    file = fleet.parent / "specs/small.yaml"
    file.write_text(f"name: {LOCK}\n{file.read_text('utf-8')}", "utf-8")
    found = tunec("fleet", fleet, "-o", fleet.parent / "build")
    assert found.code == 1
    assert f"no spec may be called `{LOCK}`" in found.err


def test_the_summary_is_sorted_by_what_its_columns_are_called(fleet, tree, tunec):
    by_key, by_header = (
        tunec("fleet", fleet, "-o", tree, "--sort", name).out
        for name in ("tokens_per_second", "tokens/s")
    )
    assert by_key == by_header
    assert by_header.splitlines()[1].split()[1] == "a100-80g-x8"
