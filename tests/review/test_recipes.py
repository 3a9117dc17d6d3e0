"""The recipes for CI and for commits, run as they stand, in a repository of their own."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.small_spec import SPEC

ROOT = Path(__file__).parents[2]
FLEET = """\
fleet: 1
specs: specs/*.yaml
clusters: [a100-80g-x8, a100-40g-x8]
targets: [deepspeed]
"""
HOOKS = {
    each["id"]: each
    for each in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
}


def run(repository: Path, *command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", *command] if command[0] == "tunec" else list(command)
    return subprocess.run(words, cwd=repository, capture_output=True, text=True, check=False)


def git(repository: Path, *command: str) -> None:
    given = ("-c", "user.name=t", "-c", "user.email=t@example.org", *command)
    done = run(repository, "git", *given)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose tree is what its fleet compiles to."""
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/small.yaml").write_text(SPEC, "utf-8")
    (tmp_path / "fleet.yaml").write_text(FLEET, "utf-8")
    git(tmp_path, "init", "-q", "-b", "main")
    assert run(tmp_path, "tunec", "fleet", "fleet.yaml", "-o", "build").returncode == 0
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "main")
    return tmp_path


def double(repository: Path) -> None:
    text = SPEC.replace("global: 64", "global: 128")
    (repository / "specs/small.yaml").write_text(text, "utf-8")


def workflow_commands() -> list[list[str]]:
    """The words of each `tunec` command of the workflow in docs/review.md, without redirections."""
    text = (ROOT / "docs/review.md").read_text("utf-8")
    block = next(
        b
        for b in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        if "intent.yml" in b
    )
    steps = yaml.safe_load(block)["jobs"]["review"]["steps"]
    lines = [line for step in steps for line in step.get("run", "").splitlines()]
    told = (line.replace("${{ github.base_ref }}", "main") for line in lines)
    return [shlex.split(line.partition(" > ")[0]) for line in told if line.startswith("tunec ")]


def test_workflow_passes_what_is_in_order_and_stops_what_is_not(repository):
    commands = workflow_commands()
    assert [command[1] for command in commands] == ["fleet", "diff", "diff"]
    assert [run(repository, *command).returncode for command in commands] == [0, 0, 0]
    double(repository)
    check, comment, gate = (run(repository, *command) for command in commands)
    assert (check.returncode, comment.returncode, gate.returncode) == (1, 0, 1)
    assert "small/a100-80g-x8: stale (changed since: spec)" in check.stdout
    assert comment.stdout.startswith("## tunec: breaking")


@pytest.mark.parametrize(
    ("hook", "arguments", "says"),
    [
        ("tunec-fleet-check", ["fleet.yaml", "-o", "build"], "stale (changed since: spec)"),
        ("tunec-diff", ["--fleet", "fleet.yaml", "--fail-on", "breaking"], "small: breaking"),
        ("tunec-diff", ["specs", "--fail-on", "breaking"], "batch.global: 64 -> 128"),
    ],
)
def test_hooks_pass_what_is_in_order_and_stop_what_is_not(repository, hook, arguments, says):
    command = [*HOOKS[hook]["entry"].split(), *arguments]
    assert HOOKS[hook]["pass_filenames"] is False
    assert run(repository, *command).returncode == 0
    double(repository)
    stopped = run(repository, *command)
    assert stopped.returncode == 1, stopped.stderr
    assert says in stopped.stdout
    assert str(repository) not in stopped.stdout
    if hook == "tunec-fleet-check":
        run(repository, "tunec", "fleet", "fleet.yaml", "-o", "build")
        assert run(repository, *command).returncode == 0
