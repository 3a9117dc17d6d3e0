"""The README of each example, and each page of the guide, shows commands with what they print.

A `console` block holds one command after `$ ` and its output, both streams; `--bless` renews it.
Those of an example run in its folder. Those of a page of the guide run in their order in one folder
of their own, which holds a copy of the examples and the files that the page shows, which are blocks
with a `title="NAME"`.
"""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest

from tunec import __version__
from tunec.compiler.cli.main import run
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.ir.values import plain
from tunec.targets.registry import REGISTRY

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGES = sorted(EXAMPLES.glob("*/README.md"))
BLOCK = re.compile(
    r"^```console\n\$ (?P<command>[^\n]+)\n(?P<output>(?:(?!```)[^\n]*\n)*)```$", re.MULTILINE
)
COMMANDS = [
    (page, match["command"]) for page in PAGES for match in BLOCK.finditer(page.read_text())
]
GUIDE = sorted((EXAMPLES.parent / "docs/guide").glob("*.md"))
FILE = re.compile(r'^```\w+ title="(?P<name>[^"]+)"\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)

ALONE = re.compile(r"tunec (?:plan|compile|lint|explain) [^|&;<>$()*~]+")
"""Commands that need no shell, and start no program."""
PROGRESS = re.compile(r"[\d,]+ of [\d,]+ \w+, [\d,]+ a second, [\d:]+ left")
"""What a fleet says now and then on a machine that is slow."""


def printed_here(command: str, folder: Path) -> str:
    """Run a command of `tunec` alone in this process, where its modules are loaded already."""
    content = io.BytesIO()
    both = io.TextIOWrapper(content, "utf-8", write_through=True)
    with chdir(folder), redirect_stdout(both), redirect_stderr(both), suppress(SystemExit):
        run(shlex.split(command)[1:], REGISTRY, __version__)
    return without_progress(content.getvalue().decode("utf-8"))


def printed(command: str, folder: Path) -> str:
    """Run a command as a reader of the page does, in its folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return without_progress(done.stdout)


def without_progress(text: str) -> str:
    lines = (line.rstrip() for line in text.rstrip("\n").split("\n"))
    return "\n".join(line for line in lines if not PROGRESS.fullmatch(line)) + "\n"


def every_slot_pinned() -> str:
    """The spec of `every-slot-pinned`: that of five lines, with its whole plan as pins."""
    planned = plan(load_spec(EXAMPLES / "five-lines/spec.yaml"))
    assert planned.plan is not None
    values = planned.plan.values().items()
    pins = [f"  {slot}: {json.dumps(plain(value))}" for slot, value in values]
    head = "# The plan of ../five-lines/spec.yaml, each slot of it pinned."
    fields = ("extends: ../five-lines/spec.yaml", "name: every-slot-pinned", "pin:")
    return "\n".join((head, *fields, *pins)) + "\n"


def test_the_plan_with_every_slot_pinned_is_the_same_plan(request):
    file = EXAMPLES / "every-slot-pinned/spec.yaml"
    if request.config.getoption("--bless", default=False):
        file.write_text(every_slot_pinned(), "utf-8")
    assert file.read_text("utf-8") == every_slot_pinned()
    assert plan(load_spec(file)).plan == plan(load_spec(EXAMPLES / "five-lines/spec.yaml")).plan


@pytest.mark.parametrize(
    ("page", "command"), COMMANDS, ids=[f"{page.parent.name}: {c}" for page, c in COMMANDS]
)
def test_a_page_shows_what_its_command_prints(page, command, request):
    """Called where that will do; those of the guide are started as a reader starts them."""
    found = (printed_here if ALONE.fullmatch(command) else printed)(command, page.parent)
    assert "Traceback" not in found
    text = page.read_text("utf-8")
    (match,) = [each for each in BLOCK.finditer(text) if each["command"] == command]
    if request.config.getoption("--bless", default=False):
        page.write_text(
            text[: match.start("output")] + found + text[match.end("output") :], "utf-8"
        )
        return
    assert match["output"] == found


def test_every_example_has_a_page_with_commands():
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == {page.parent.name for page, _ in COMMANDS}


def as_printed(page: Path, folder: Path) -> str:
    """A page of the guide with what its commands print, in a folder with its files."""
    text = page.read_text("utf-8")
    shutil.copytree(EXAMPLES, folder / "examples")
    for shown in FILE.finditer(text):
        (folder / shown["name"]).write_text(shown["text"], "utf-8")
    return BLOCK.sub(
        lambda block: f"```console\n$ {block['command']}\n{printed(block['command'], folder)}```",
        text,
    )


@pytest.mark.parametrize("page", GUIDE, ids=[page.stem for page in GUIDE])
def test_a_page_of_the_guide_shows_what_its_commands_print(page, request, tmp_path):
    found = as_printed(page, tmp_path / "run")
    assert "Traceback" not in found
    if request.config.getoption("--bless", default=False):
        page.write_text(found, "utf-8")
    assert page.read_text("utf-8") == found


def test_the_guide_runs_commands():
    assert sum(len(BLOCK.findall(page.read_text("utf-8"))) for page in GUIDE) > 20
