"""Every command of the README works as it stands there."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(README)
SHELL = [text.strip() for language, text in BLOCKS if language == "sh"]
CONSOLE = "".join(text for language, text in BLOCKS if language == "console")
LEFT_OUT = (".*", "__pycache__", "dist", "build", "*.egg-info")


def test_the_blocks_are_of_kinds_that_are_tested():
    assert {language for language, _ in BLOCKS} <= {"sh", "yaml", "console", "python"}
    assert len(SHELL) == 3


def test_the_road_begins_as_it_stands_there(tmp_path):
    """In a copy of the checkout, with nothing installed: the first command, then the road.

    Its last line starts a trainer; tests/road runs such lines to their end.
    """
    shutil.copytree(
        ROOT, tmp_path / "tunec", symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT)
    )
    bare = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", str(tmp_path))}
    first = SHELL[0].replace("python3", shlex.quote(sys.executable), 1)
    *road, last = SHELL[1].splitlines()
    assert last == "bash out/run.sh"
    done = [
        subprocess.run(
            command,
            shell=True,
            cwd=tmp_path / "tunec",
            env={**bare, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            capture_output=True,
            text=True,
        )
        for command in (first, *road)
    ]
    assert [each.stderr for each in done if each.returncode] == []
    assert done[0].stdout.startswith("{")
    assert '"train_batch_size"' in done[0].stdout
    assert "start it with: bash out/run.sh" in done[-1].stderr
    assert (tmp_path / "tunec/out/run.sh").is_file()


def test_the_last_command_is_what_ci_runs():
    """CI is that command, so it is run whenever this test is."""
    assert SHELL[2] == "bash .ci/run"
    text = (ROOT / ".ci/run").read_text("utf-8")
    assert 'just" check' in text
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_console_blocks_run_tunec():
    """That their outputs are the real ones is checked with everything derived."""
    commands = re.findall(r"^\$ (.*)$", CONSOLE, re.MULTILINE)
    assert len(commands) >= 5
    assert all(each.startswith("tunec ") for each in commands)
    assert "Traceback" not in CONSOLE


def test_five_line_spec_is_the_example():
    (text,) = [text for language, text in BLOCKS if language == "yaml"]
    example = (ROOT / "examples/five-lines/spec.yaml").read_text("utf-8")
    lines = [line for line in example.splitlines() if line and not line.startswith("#")]
    assert text.splitlines() == lines
    assert len(lines) == 5


@pytest.mark.parametrize("code", [text for language, text in BLOCKS if language == "python"])
def test_python_block_runs(code, tmp_path):
    example = ROOT / "examples/minicpm-v-2_6-lora/spec.yaml"
    shutil.copy(example, tmp_path / "spec.yaml")
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "launch.sh" in done.stdout


def test_links_lead_somewhere():
    pages = [ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING", "STYLE")]
    for page in [*pages, *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
