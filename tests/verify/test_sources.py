"""Programs that are on no package index: from a clone, or not checked, and never passed."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.verify.edited_runs import cases

from tunec.compiler.consumers.environments import EnvironmentUnavailable
from tunec.compiler.verify.queries import verify
from tunec.targets.scripts import sources
from tunec.targets.scripts.sources import Source, blob, obtain

PINNED = b"class Settings:\n    rate: float = 0.1\n"


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path):
    """A clone whose last state has another content than the pinned one."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    folder = tmp_path / "clone"
    folder.mkdir()
    git(folder, "init", "-q")
    for content in (PINNED, b"class Settings:\n    rate: float = 0.2\n"):
        (folder / "finetune.py").write_bytes(content)
        git(folder, "add", "finetune.py")
        git(folder, "commit", "-q", "-m", "state")
    return folder


@pytest.fixture
def unreachable(monkeypatch):
    def fetched(source):
        raise EnvironmentUnavailable(source.name, "no network")

    monkeypatch.setattr(sources, "_fetched", fetched)


def test_a_clone_gives_the_pinned_content_from_its_history(clone, tmp_path, unreachable):
    pinned = Source("nobody/nothing", "0" * 40, "finetune.py", blob(PINNED))
    found = obtain(pinned, [tmp_path, clone], tmp_path / "cache")
    assert found.read_bytes() == PINNED
    assert obtain(pinned, (), tmp_path / "cache") == found


def test_what_no_clone_has_is_not_there(clone, tmp_path, unreachable):
    other = Source("nobody/nothing", "0" * 40, "finetune.py", blob(b"another"))
    with pytest.raises(EnvironmentUnavailable, match="no network"):
        obtain(other, [clone], tmp_path / "cache")


@pytest.mark.real
@pytest.mark.parametrize(("run", "target"), [("glm4", "glm4"), ("visualglm", "visualglm")])
def test_files_of_a_program_that_cannot_be_had_are_not_checked(
    run, target, tmp_path, monkeypatch, unreachable
):
    monkeypatch.setattr(sources, "default_cache", lambda: tmp_path / "cache" / "consumers")
    wanted = {"FinetuningConfig.from_file", "sat get_args"}
    checks = verify([cases(run)[target]])
    (asked,) = [each for each in checks if each.program in wanted]
    assert asked.status == "unchecked"
    assert "no network" in asked.reason
    assert "@" in asked.reason, "the file is cited by its commit"
