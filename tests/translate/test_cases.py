"""Literate cases: files, a command, and what it says and writes. `--bless` renews the outcomes."""

import re
import shlex
from pathlib import Path

import pytest

from tunec.__main__ import main

CASES = sorted((Path(__file__).parent / "cases").glob("*.md"))
FILE = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ASKED = re.compile(r"^```console\n\$ (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_case(case, tmp_path, monkeypatch, capsys, request):
    text = case.read_text("utf-8")
    for name, content in FILE.findall(text):
        (tmp_path / name).write_text(content, "utf-8")
    monkeypatch.chdir(tmp_path)
    fresh = text
    for command, outcome in ASKED.findall(text):
        found = outcome_of(command, monkeypatch, capsys)
        fresh = fresh.replace(f"$ {command}\n{outcome}", f"$ {command}\n{found}", 1)
    if request.config.getoption("--bless"):
        case.write_text(fresh, "utf-8")
    else:
        assert fresh == text


def outcome_of(command, monkeypatch, capsys):
    """What a command prints, then each file that it wrote, then its exit code unless it is 0."""
    monkeypatch.setattr("sys.argv", shlex.split(command))
    code = main()
    said = capsys.readouterr()
    written = re.findall(r"^(?:wrote|written:) ([^,\n]+)", said.err, re.MULTILINE)
    files = "".join(f"── {name}\n{Path(name).read_text('utf-8')}" for name in written)
    return f"{said.err}{said.out}{files}{f'exit code {code}{chr(10)}' if code else ''}"
