"""Files are the old or the new ones, however writing ends; a rule that raises ends nothing."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.cli.shell import FIVE, Shell
from tests.kills.steps import is_killed

from tunec.compiler.lints import emission, lint
from tunec.compiler.lints import rule as rules
from tunec.compiler.lints.rule import rule
from tunec.compiler.writing import COMPLETE, STAGED, Unwritable, write_all

OLD = {"launch/launch.sh": "#!/bin/sh\nold\n", "deepspeed/ds.json": "old", "trl/sft.yaml": "same"}
NEW = {**OLD, "launch/launch.sh": "#!/bin/sh\nnew\n", "deepspeed/ds.json": "new", "run.sh": "new"}


def below(folder, texts):
    return {folder / name: text for name, text in texts.items()}


def there(folder):
    files = (each for each in folder.rglob("*") if each.is_file())
    return {each.relative_to(folder).as_posix(): each.read_text("utf-8") for each in files}


@pytest.mark.parametrize("is_there", [True, False])
def test_a_set_is_whole_wherever_its_writer_is_killed(is_there, tmp_path):
    step = 0
    while True:
        home = tmp_path / str(step)
        home.mkdir()
        folder = home / "out"
        if is_there:
            write_all(below(folder, OLD), folder)
            (folder / "notes.txt").write_text("mine", "utf-8")
        was_killed = is_killed(partial(write_all, below(folder, NEW), folder), step)
        found = there(folder)
        own = {name: text for name, text in found.items() if STAGED not in name}
        mine = {"notes.txt": "mine"} if is_there else {}
        if not (folder / COMPLETE).exists():
            assert own in ((OLD if is_there else {}) | mine, NEW | mine), step
        write_all(below(folder, NEW), folder)
        assert there(folder) == NEW | mine
        assert [each.name for each in home.iterdir()] == ["out"]
        assert not any("tunec" in each.name for each in folder.rglob("*"))
        if not was_killed:
            break
        step += 1
    assert step > 15, "the steps are seen"


def test_a_script_can_be_run_and_permissions_stay(tmp_path):
    write_all(below(tmp_path / "out", OLD), tmp_path / "out")
    script, other = tmp_path / "out/launch/launch.sh", tmp_path / "out/deepspeed/ds.json"
    assert script.stat().st_mode & 0o777 == 0o755
    other.chmod(0o600)
    write_all(below(tmp_path / "out", NEW), tmp_path / "out")
    assert other.stat().st_mode & 0o777 == 0o600


def test_what_is_as_it_should_be_is_not_touched(tmp_path):
    write_all(below(tmp_path, OLD), tmp_path)
    before = {each: each.stat().st_mtime_ns for each in tmp_path.rglob("*")}
    assert write_all(below(tmp_path, OLD), tmp_path) == []
    assert {each: each.stat().st_mtime_ns for each in tmp_path.rglob("*")} == before


# ── links ────────────────────────────────────────────────────────────────────────────────────────


def test_no_link_leads_out_of_the_directory(tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/launch").symlink_to("../victim")
    with pytest.raises(Unwritable, match=r"a link leads out of .*out"):
        write_all(below(tmp_path / "out", OLD), tmp_path / "out")
    assert list((tmp_path / "victim").iterdir()) == []
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["launch"]


def test_a_link_inside_is_followed_and_stays(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "launch").symlink_to("kept")
    write_all(below(tmp_path, OLD), tmp_path)
    assert (tmp_path / "launch").is_symlink()
    assert (tmp_path / "kept/launch.sh").read_text("utf-8").endswith("old\n")


def test_a_file_that_is_a_link_out_of_its_directory_is_refused(tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "victim").write_text("theirs", "utf-8")
    (tmp_path / "here/page.html").symlink_to("../victim")
    with pytest.raises(Unwritable, match="a link leads out"):
        write_all({tmp_path / "here/page.html": "mine"})
    assert (tmp_path / "victim").read_text("utf-8") == "theirs"


@pytest.mark.parametrize("form", ["the set", "a folder of it"])
def test_what_a_killed_run_left_follows_no_link_out(form, tmp_path):
    """A stranger's directory may hold what looks like the set of a killed run."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/launch.sh").write_text("theirs", "utf-8")
    out = tmp_path / "out"
    out.mkdir()
    if form == "the set":
        (out / COMPLETE).symlink_to("../victim")
        write_all(below(out, OLD), out)
        assert there(out) == OLD
    else:
        (out / COMPLETE / "launch").mkdir(parents=True)
        (out / COMPLETE / "launch/launch.sh").write_text("planted", "utf-8")
        (out / "launch").symlink_to("../victim")
        with pytest.raises(Unwritable, match="a link leads out"):
            write_all(below(out, OLD), out)
    assert there(tmp_path / "victim") == {"launch.sh": "theirs"}


def test_a_fleet_follows_no_link_out_of_its_tree(tmp_path, tunec):
    (tmp_path / "victim").mkdir()
    (tmp_path / "build").mkdir()
    (tmp_path / "build/spec").symlink_to("../victim")
    shutil.copy(FIVE, tmp_path / "spec.yaml")
    text = "fleet: 1\nspecs: spec.yaml\nclusters: [a100-80g-x8]\ntargets: [huggingface]\n"
    (tmp_path / "fleet.yaml").write_text(text, "utf-8")
    done = tunec("fleet", tmp_path / "fleet.yaml", "-o", tmp_path / "build")
    assert done.code == 2
    assert "a link leads out of" in done.err
    assert list((tmp_path / "victim").iterdir()) == []


def test_a_new_script_has_the_permissions_that_are_usual(tmp_path):
    before = os.umask(0o077)
    try:
        write_all(below(tmp_path / "out", OLD), tmp_path / "out")
    finally:
        os.umask(before)
    assert (tmp_path / "out/launch/launch.sh").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "out/deepspeed/ds.json").stat().st_mode & 0o777 == 0o600


# ── what is no file ──────────────────────────────────────────────────────────────────────────────


def schema_to(place, folder):
    command = f'"{sys.executable}" -m tunec schema spec -o {place}'
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, check=False)


@pytest.mark.parametrize("place", ["/dev/stdout", ">(cat)", "/dev/stdout > page; cat page"])
def test_a_stream_is_written_to(place, tmp_path):
    done = schema_to(place, tmp_path)
    assert (done.returncode, done.stdout[:1]) == (0, b"{"), done.stderr
    assert Path("/dev/stdout").is_symlink()


def test_a_device_stays_one_and_a_full_one_is_told(tmp_path):
    done = schema_to("/dev/full", tmp_path)
    assert (done.returncode, b"cannot write /dev/full: No space left" in done.stderr) == (2, True)
    assert schema_to("/dev/null", tmp_path).returncode == 0
    assert Path("/dev/null").is_char_device()


def test_a_device_that_there_is_not_is_not_made(tmp_path):
    done = schema_to("/dev/tunec-typo", tmp_path)
    assert (done.returncode, Path("/dev/tunec-typo").exists()) == (2, False)


def test_a_pipe_stays_one(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    done = schema_to("pipe & cat pipe; wait $!", tmp_path)
    assert (done.returncode, done.stdout[:1]) == (0, b"{"), done.stderr
    assert (tmp_path / "pipe").is_fifo()


def test_a_pipe_in_the_place_of_a_directory_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unwritable, match=r"cannot write .*pipe"):
        write_all(below(tmp_path / "pipe", NEW), tmp_path / "pipe")


def test_a_directory_in_the_place_of_a_file_is_told_before_anything_moves(tmp_path):
    write_all(below(tmp_path / "out", OLD), tmp_path / "out")
    (tmp_path / "out/run.sh").mkdir()
    with pytest.raises(Unwritable, match=r"cannot (read|write) .*run\.sh"):
        write_all(below(tmp_path / "out", NEW), tmp_path / "out")
    assert there(tmp_path / "out") == OLD
    (tmp_path / "file").write_text("a file", "utf-8")
    with pytest.raises(Unwritable, match="cannot write"):
        write_all(below(tmp_path / "file", OLD), tmp_path / "file")


SAID = "tunec failed to check this: ZeroDivisionError: no number"


@rule("error", "parse", consumers=())
def few_numbers(run):
    yield from ()
    raise ZeroDivisionError("no number")


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command asks one rule more; its failure is told, and not raised as in other tests."""
    monkeypatch.setattr(rules, "failure", rules.failure.__wrapped__)  # type: ignore[attr-defined]
    for module in (emission, lint):
        known = module.rules_for
        monkeypatch.setattr(
            module, "rules_for", lambda *of, known=known: (few_numbers, *known(*of))
        )


@pytest.fixture
def files(tmp_path: Path, tunec: Shell) -> Path:
    """Files of a run, which no rule has failed on."""
    assert tunec("compile", FIVE, "--target", "huggingface", "-o", tmp_path / "in").code == 0
    return tmp_path / "in/huggingface/training_args.yaml"


COMMANDS = (
    ("compile", FIVE, "--target", "huggingface", "-o", "out"),
    ("plan", FIVE, "--target", "huggingface"),
    ("translate", "FILES", "--to", "huggingface", "--world-size", "8", "-o", "out"),
)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each[0])
def test_it_is_named_and_the_rest_goes_on(
    command, form, files, tunec, tmp_path, monkeypatch, request
):
    monkeypatch.chdir(tmp_path)
    words = [str(files) if each == "FILES" else each for each in command]
    assert tunec(*words).code == 0, "nothing is wrong but the rule"
    shutil.rmtree("out", ignore_errors=True)
    request.getfixturevalue("failed")
    done = tunec(*words, "--format", form)
    assert done.code == 70, done.err
    if form == "json":
        told = [each for each in done.json["diagnostics"] if each["id"] == "few-numbers"]
        assert [each["message"] for each in told] == [SAID]
    else:
        assert f"warning[few-numbers]: {SAID}" in done.err
    if "-o" in words:
        assert any(Path("out").rglob("*.yaml")), "what the other rules accept is written"


def test_a_fleet_says_so_until_the_pair_was_checked(tmp_path, tunec, failed):
    shutil.copy(FIVE, tmp_path / "spec.yaml")
    text = "fleet: 1\nspecs: spec.yaml\nclusters: [a100-80g-x8]\ntargets: [huggingface]\n"
    (tmp_path / "fleet.yaml").write_text(text, "utf-8")
    command = ("fleet", tmp_path / "fleet.yaml", "-o", tmp_path / "build")
    first, second = tunec(*command), tunec(*command, "--format", "json")
    assert (first.code, second.code) == (70, 70), first.err + second.err
    assert SAID in first.err
    assert "few-numbers" in second.err
    (row,) = second.json
    assert (row["fits"], row["unchecked"]) == (True, ["few-numbers"])
    assert any((tmp_path / "build").rglob("training_args.yaml"))


def test_a_baseline_holds_no_silent_failure(tmp_path, tunec, failed):
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": {"stage": 2}}), "utf-8")
    baseline = tmp_path / "base.json"
    done = tunec("lint", tmp_path / "ds.json", "--baseline", baseline, "--write-baseline")
    assert done.code == 70
    assert baseline.exists()
