"""The tables of mangled specs: every fault is told, at its place, in the words that help.

A case in `mangled/*.md` is a spec with marked stretches, and what has to be said at each mark.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tunec.compiler.diagnostics.terminal import render
from tunec.compiler.frontend.load import load_spec
from tunec.schemas.source import text_of

BASE = """\
tunec: 1
model: llama-3.1-8b
method: lora
data: {train: train.jsonl, sequence: 1024}
hardware: a100-80g-x8
"""
COMMAND_LINE = "<command line>"
_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ITEM = re.compile(r"^- (E\d{4}) (\S+): (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Mark:
    """A marked stretch: the file, its first and last place (line, column from 1), its text."""

    file: str
    start: tuple[int, int]
    end: tuple[int, int]
    text: str


@dataclass(frozen=True)
class Expected:
    code: str
    path: str
    piece: str


@dataclass
class Case:
    title: str
    files: dict[str, str] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)
    spec: str = "spec.yaml"


def read_cases(folder: Path) -> Iterator[Case]:
    for file in sorted(folder.glob("*.md")):
        for part in re.split(r"^## ", file.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            title, _, body = part.partition("\n")
            yield _case(f"{file.stem}: {title}", body)


def _case(title: str, body: str) -> Case:
    case = Case(title)
    case.expected = [
        Expected(code, "" if path == "." else path, piece)
        for code, path, piece in _ITEM.findall(_BLOCK.sub("", body))
    ]
    for language, info, text in _BLOCK.findall(body):
        if language == "console":
            marked = "\n".join(line.removeprefix("--set ") for line in text.splitlines())
            case.overrides = _unmark(marked, COMMAND_LINE, case).split("\n")
            continue
        if "." in info:
            name = info
        else:
            name = case.spec = "spec.json" if language == "json" else "spec.yaml"
        whole = info == "whole" or "." in info
        case.files[name] = _unmark(text if whole else edited(text), name, case)
    return case


def edited(lines: str) -> str:
    """The base spec with some of its top-level keys replaced, removed (`!key`) or added."""
    parts = {line.partition(":")[0]: line for line in BASE.splitlines()}
    for block in re.split(r"^(?=[^\s])", lines, flags=re.MULTILINE):
        bare = re.sub("[«»]", "", block)
        if bare.startswith("!"):
            del parts[bare[1:].strip()]
        elif bare.strip():
            key = bare.partition(":")[0]
            parts[key if block[0] != ":" else f"{block}"] = block.rstrip("\n")
    return "".join(f"{part}\n" for part in parts.values())


def _unmark(marked: str, file: str, case: Case) -> str:
    """The text without marks; each mark is noted, in the order in which they begin."""
    plain, open_at, found = "", [], []
    for character in marked:
        if character == "«":
            open_at.append((len(found), len(plain)))
            found.append((len(plain), len(plain)))
        elif character == "»":
            at, start = open_at.pop()
            found[at] = (start, len(plain))
        else:
            plain += character
    case.marks += [
        Mark(file, _place(plain, start), _place(plain, end), plain[start:end])
        for start, end in found
    ]
    return plain


def _place(text: str, index: int) -> tuple[int, int]:
    before = text[:index]
    return before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1


CASES = list(read_cases(Path(__file__).parent / "mangled"))
TARGETS = ("deepspeed", "huggingface", "simpletuner")


def test_there_are_many():
    assert len(CASES) >= 150
    assert len({case.title for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_mangled(case, tmp_path):
    assert len(case.marks) == len(case.expected), "a mark for each item"
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in case.files.items():
        (folder / name).write_text(text, "utf-8", newline="")
    loaded = load_spec(folder / case.spec, case.overrides, targets=TARGETS)
    assert loaded.spec is None
    told = [(each.id, each.primary.path, each.message) for each in loaded.diagnostics]
    assert [(code, path) for code, path, _ in told] == [
        (each.code, each.path) for each in case.expected
    ], told
    for found, expected, mark in zip(loaded.diagnostics, case.expected, case.marks, strict=True):
        said = "\n".join((found.message, *found.notes, found.help or "", found.primary.text))
        assert expected.piece in said
        span = found.primary.span
        name = mark.file if mark.file == COMMAND_LINE else str(folder / mark.file)
        assert span.file == name
        assert ((span.line, span.column), (span.end_line, span.end_column)) == (
            mark.start,
            mark.end,
        )
        assert text_of(span, loaded.sources[span.file]) == mark.text
        assert found.message in render(found, loaded.sources)
