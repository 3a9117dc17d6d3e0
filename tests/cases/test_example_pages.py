"""The README of each example shows commands with what they really print.

A `console` block holds one command after `$ ` and its output, both streams; `--bless` renews it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.ir.values import plain

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGES = sorted(EXAMPLES.glob("*/README.md"))
BLOCK = re.compile(
    r"^```console\n\$ (?P<command>[^\n]+)\n(?P<output>(?:(?!```)[^\n]*\n)*)```$", re.MULTILINE
)
COMMANDS = [
    (page, match["command"]) for page in PAGES for match in BLOCK.finditer(page.read_text())
]


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
    return "\n".join(line.rstrip() for line in done.stdout.rstrip("\n").split("\n")) + "\n"


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
    found = printed(command, page.parent)
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
