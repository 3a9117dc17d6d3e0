"""Literate cases: each heading of a Markdown file is a spec with what must become of it.

Below a heading stand fenced blocks, told apart by the words after the fence:

- `yaml spec`: the spec; `yaml NAME.yaml`: a file beside it, for `extends`;
- `console`: the command, for its `--set` and `--hardware`;
- `diagnostics`: all that is reported, as the terminal shows it; without one, nothing is;
- `plan`: slots and their values, those that the case is about; where nothing is planned, without;
- `LANGUAGE TARGET/FILE`: an emitted file.

`python -m pytest tests/cases --bless` writes what is found into the blocks.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tunec.compiler.diagnostics.terminal import render
from tunec.compiler.driver import Compiled, Planned, compile_spec, plan
from tunec.compiler.frontend.load import Loaded, load_spec
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.values import show
from tunec.targets.registry import REGISTRY

HERE = Path(__file__).parent
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: where its text stands in the file, and what the fence says."""

    info: str
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Case:
    """One heading with its blocks."""

    file: Path
    title: str
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return f"{self.file.stem}: {self.title}"

    def block(self, info: str) -> Block | None:
        """The block of that kind, if there is one."""
        return next((each for each in self.blocks if each.info == info), None)


def cases_of(file: Path) -> Iterator[Case]:
    """The cases of a file, in order."""
    text = file.read_text("utf-8")
    heads = list(HEADING.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        end = following.start() if following else len(text)
        fences = FENCE.finditer(text, head.end(), end)
        blocks = (Block(m["info"], m["text"], m.start("text"), m.end("text")) for m in fences)
        yield Case(file, head[1], tuple(blocks))


def every_case() -> list[Case]:
    """All cases of all files."""
    return [case for file in sorted(HERE.glob("*.md")) for case in cases_of(file)]


def load(case: Case, folder: Path) -> Loaded:
    """Write the case's files and read its spec, as from their directory."""
    spec = case.block("yaml spec")
    assert spec is not None, f"{case} has no spec"
    (folder / "spec.yaml").write_text(spec.text, "utf-8")
    for block in case.blocks:
        language, _, name = block.info.partition(" ")
        if language == "yaml" and name.endswith(".yaml") and "/" not in name:
            (folder / name).write_text(block.text, "utf-8")
    command = case.block("console")
    words = shlex.split(command.text) if command else []
    after = {option: [words[at + 1] for at, word in enumerate(words) if word == option]
             for option in ("--set", "--hardware")}  # fmt: skip
    hardware = after["--hardware"][0] if after["--hardware"] else None
    return load_spec(Path("spec.yaml"), after["--set"], hardware, targets=REGISTRY.names())


def compiled(loaded: Loaded) -> Compiled:
    """The files of the targets that the spec names; without any, only its plan."""
    spec = loaded.spec
    asked = tuple(REGISTRY.resolve(n, spec.software) for n in spec.targets) if spec else ()
    if asked:
        return compile_spec(loaded, asked)
    planned = plan(loaded)
    return Compiled(planned, {}, planned.diagnostics)


def found_text(info: str, expected: str, result: Compiled) -> str | None:
    """What a block must hold; None for a block that is given and not found."""
    if info == "diagnostics":
        return reported(result)
    if info == "plan":
        return decided(expected, result.planned)
    _, _, path = info.partition(" ")
    if "/" not in path:
        return None
    target, _, name = path.partition("/")
    texts = {each.name: each.text for each in result.artifacts.get(target, ())}
    return texts.get(name, "not written\n")


def reported(result: Compiled) -> str:
    """Every diagnostic as the terminal shows it."""
    sources = result.planned.loaded.sources
    texts = [render(each, sources, color=False).strip("\n") for each in result.diagnostics]
    return "\n\n".join(texts) + "\n" if texts else ""


def decided(expected: str, planned: Planned) -> str:
    """The lines `slot = value` of the slots that the block names."""
    if planned.plan is None:
        return "no plan\n"
    names = (line.partition(" = ")[0].strip() for line in expected.splitlines())
    slots = [name for name in names if name in SLOTS]
    return "".join(f"{slot} = {show(slot, planned.plan[slot])}\n" for slot in slots)


@pytest.mark.parametrize("case", every_case(), ids=str)
def test_case(case, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    result = compiled(load(case, tmp_path))
    told = reported(result)
    if request.config.getoption("--bless", default=False):
        bless(case, result, told)
        return
    assert (case.block("diagnostics") is not None) == bool(told), told
    for block in case.blocks:
        found = found_text(block.info, block.text, result)
        assert found is None or found == block.text, block.info


def bless(case: Case, result: Compiled, told: str) -> None:
    """Write what was found into the case's file."""
    (current,) = [each for each in cases_of(case.file) if each.title == case.title]
    text = case.file.read_text("utf-8")
    for block in reversed(current.blocks):
        found = found_text(block.info, block.text, result)
        if found is not None:
            text = text[: block.start] + found + text[block.end :]
    if told and current.block("diagnostics") is None:
        spec = current.block("yaml spec")
        assert spec is not None
        at = text.index("```", spec.start) + len("```\n")
        text = f"{text[:at]}\n```diagnostics\n{told}```\n{text[at:]}"
    case.file.write_text(text, "utf-8")


def test_there_are_cases():
    titles = [str(case) for case in every_case()]
    assert len(titles) > 20
    assert len(titles) == len(set(titles))


def test_every_case_expects_something():
    for case in every_case():
        kinds = {block.info for block in case.blocks}
        assert kinds & {"diagnostics", "plan"} or any("/" in kind for kind in kinds), case
