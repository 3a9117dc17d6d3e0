"""Every code and name has a page whose example shows it, and what is allowed is hidden."""

import re
import shlex
from pathlib import Path

import pytest

from tunec.compiler.diagnostics.allow import Allowance, suppress
from tunec.compiler.diagnostics.codes import AREAS, is_code, known_ids, page, title
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.frontend.load import Loaded, load_spec, load_text
from tunec.schemas.source import Span

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TARGETS = (
    *(
        "deepspeed",
        "huggingface",
        "simpletuner",
        "launch",
        "trl",
        "axolotl",
        "llamafactory",
        "ms-swift",
        "unsloth",
        "verl",
    ),
    *("slurm", "nemo-automodel", "kubeflow", "skypilot"),
)


def used_codes(*folders):
    for folder in folders or ("compiler", "schemas", "targets"):
        for file in (ROOT / folder).rglob("*.py"):
            for code in re.findall(r'"(E\d{4})"', file.read_text("utf-8")):
                yield code, file.relative_to(ROOT)


def used_names():
    """Names of notes and warnings: the first argument of a report or a diagnostic."""
    for folder in ("compiler", "targets"):
        for file in (ROOT / folder).rglob("*.py"):
            called = r'(?:report|Diagnostic)\(\s*"([a-z]+(?:-[a-z]+)+)",\s*"(?:note|warning)"'
            for name in re.findall(called, file.read_text("utf-8")):
                yield name, file.relative_to(ROOT)


_READING = Path("compiler/frontend")
OF_LOADER = {code for code, file in used_codes() if file.is_relative_to(_READING)} - {
    code for code, file in used_codes() if not file.is_relative_to(_READING)
}
"""Codes that reading alone gives; the others need a plan."""


OF_VERIFY = {"E1001", "E1002", "E1003", "beyond-the-plan"}
"""What only real programs can show: tests/verify/test_pages.py runs these examples."""

OF_TRANSLATE = {
    "computed-in-another-way",
    *("E0906", "E0907", "E0908"),
    *("left-to-its-default", "left-out", "left-unsaid", "not-carried-over", "version-assumed"),
}
"""What only `tunec translate` says: tests/translate/test_pages.py runs these examples."""

USED = {each for each, _ in (*used_codes(), *used_names())}


@pytest.mark.parametrize("id", sorted(USED))
def test_used_id_has_page(id):
    assert id in known_ids(), [str(f) for i, f in (*used_codes(), *used_names()) if i == id]


def test_pages_are_of_used_ids():
    assert set(known_ids()) <= USED


@pytest.mark.parametrize("code", known_ids())
def test_page_has_title_and_area(code):
    text = page(code)
    assert text.startswith(f"# {code}: {title(code)}\n")
    assert not is_code(code) or code[:3] in AREAS
    assert "## Example" in text
    assert "## How to fix it" in text
    assert not title(code).endswith(".")


@pytest.mark.parametrize("code", sorted(set(known_ids()) - OF_VERIFY - OF_TRANSLATE))
def test_example_shows_the_error_and_mending_ends_it(code, tmp_path):
    blocks = [(language, info, text) for language, info, text in BLOCK.findall(page(code))]
    diagnose = read if code in OF_LOADER else compiled
    folder = tmp_path / "fails" / "project"
    failing = (*diagnose(run(blocks, "fails", folder)), *of_other_files(blocks, "fails", folder))
    assert code in {each.id for each in failing}, failing
    folder = tmp_path / "fixed" / "project"
    mended = (*diagnose(run(blocks, "fixed", folder)), *of_other_files(blocks, "fixed", folder))
    assert not [each for each in mended if each.severity == "error" or each.id == code]


def run(blocks, kind: str, folder: Path) -> Loaded:
    """Write a page's files, and read the spec of the block that is marked `fails` or `fixed`."""
    folder.mkdir(parents=True)
    overrides: list[str] = []
    name = "spec.yaml"
    for language, info, text in blocks:
        if "." in info:
            (folder / info).write_text(text, "utf-8")
        elif info == kind and language == "console":
            overrides = arguments(text, "--set")
        elif info == kind:
            name = write(folder, language, text)
    return load_spec(folder / name, overrides, targets=TARGETS)


def write(folder: Path, language: str, text: str) -> str:
    """Write an example; one in Python makes `text`, and maybe `files`."""
    name = "spec.json" if language == "json" else "spec.yaml"
    made: dict[str, object] = {"text": text}
    if language == "python":
        exec(text, made)  # noqa: S102  our own page
    content = made["text"]
    (folder / name).write_bytes(content if isinstance(content, bytes) else str(content).encode())
    for other, inside in made.get("files", {}).items():
        (folder / other).write_text(inside, "utf-8")
    return name


def read(loaded: Loaded) -> tuple[Diagnostic, ...]:
    return loaded.diagnostics


def compiled(loaded: Loaded) -> tuple[Diagnostic, ...]:
    """What planning the spec says, and writing the files of the targets that it names."""
    from tunec.compiler.bundle import Outset
    from tunec.compiler.driver import compile_spec
    from tunec.targets.registry import REGISTRY

    spec = loaded.spec
    asked = tuple(REGISTRY.resolve(n, spec.software) for n in spec.targets) if spec else ()
    outset = Outset("..", REGISTRY.resolve("launch"))
    return compile_spec(loaded, asked, outset).diagnostics


def of_other_files(blocks, kind: str, folder: Path) -> list[Diagnostic]:
    """What is wrong with the policies, fleet files and settings that an example's command names."""
    from tunec.compiler.fleet.selection import select
    from tunec.compiler.lints.settings import read_settings
    from tunec.compiler.review.policy import load_policy

    commands = (text for language, info, text in blocks if (language, info) == ("console", kind))
    found: list[Diagnostic] = []
    for text in commands:
        for name in arguments(text, "--policy"):
            found += load_policy(folder / name).faults
        for name in arguments(text, "fleet"):
            found += select(folder / name).diagnostics
        for name in arguments(text, "--config"):
            found += read_settings(folder / name, name).faults
    return found


def arguments(text: str, option: str) -> list[str]:
    words = shlex.split(text)
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def test_page_of_an_unknown_code_is_a_key_error():
    with pytest.raises(KeyError):
        page("E9999")
    assert not is_code("offload-param-ignored")
    assert not is_code("E030")


def lint(name="some-lint", severity="warning", file="f.yaml", line=3, end_line=3):
    label = Label("", Span(file, line, 1, end_line, 5))
    return Diagnostic(name, severity, "a thing", (label,))


def comment(line, name="some-lint", file="f.yaml"):
    return Allowance(name, "why", Span(file, line, 9, line, 20), line)


def test_everywhere():
    found = suppress([lint(), lint("other")], [Allowance("some-lint", "why")])
    assert [each.id for each in found.kept] == ["other"]
    assert not found.unused


def test_on_the_line():
    here, there = lint(line=3), lint(line=4)
    assert suppress([here, there], [comment(3)]).kept == (there,)
    assert suppress([here], [comment(3, file="g.yaml")]).kept == (here,)
    assert suppress([here], [comment(3, name="other")]).kept == (here,)
    assert suppress([lint(line=2, end_line=5)], [comment(4)]).kept == ()


def test_a_second_place_does_not_count():
    label = Label("", Span("f.yaml", 3, 1, 3, 5), primary=False)
    found = Diagnostic("some-lint", "note", "a thing", (label,))
    assert suppress([found], [comment(3)]).kept == (found,)


def test_hard_errors_remain():
    hard = lint("E0301", "error")
    found = suppress([hard], [Allowance("E0301", "why"), comment(3, "E0301")])
    assert found.kept == (hard,)
    assert len(found.unused) == 2


def test_lints_of_any_severity_can_be_allowed():
    assert suppress([lint(severity="error")], [Allowance("some-lint", "why")]).kept == ()


def test_what_hides_nothing_is_told():
    idle = comment(9)
    assert suppress([lint()], [Allowance("some-lint", "why"), idle]).unused == (idle,)


def test_comments_of_a_spec():
    text = "tunec: 1\ntrain:\n  epochs: 3 # tunec: allow(some-lint) it is meant so\n"
    loaded = load_text(text, "f.yaml")
    assert suppress([lint(line=3)], loaded.allowances).kept == ()
    assert suppress([lint(line=2, end_line=2)], loaded.allowances).kept
