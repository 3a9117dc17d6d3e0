"""What must not grow or come back: long files, long functions, phrases of the old style."""

import ast
import re
from functools import cache
from pathlib import Path
from statistics import median, quantiles

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*-*.md"),
        *(ROOT / "docs" / "guide").glob("*.md"),
        *(ROOT / "compiler" / "lints" / "checks").rglob("*.md"),
        *(ROOT / "compiler" / "diagnostics" / "pages").glob("*.md"),
        *(ROOT / "targets").glob("*/rules/*.md"),
    ]
)
PHRASES = {
    "without a word": "silently",
    "in silence": "silently",
    "nobody names the version": "if no version is given",
    "nobody names the release": "if no release is given",
    "nothing says so": "silently, or without a message",
    "otherwise than": "differs from",
    "at its word": "literally",
    "asked for here": "requested here",
    "unasked": "by default",
    "nobody says": "by default, or if no file says",
    "no word is said": "silently",
}
_CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("phrase", PHRASES)
def test_no_page_falls_back_into_the_old_style(phrase):
    assert len(PAGES) > 500
    found = [
        page.relative_to(ROOT).as_posix()
        for page in PAGES
        if phrase in " ".join(_CODE.sub("", page.read_text("utf-8")).lower().split())
    ]
    assert not found, f"write {PHRASES[phrase]!r} instead"


_TEXT = re.compile(r'(?<!")"([^"\n]+)"(?!")')
_IN_MESSAGES = ("unasked", "without a word", "nobody says", "nobody names", "is told ", "is said ")


def test_no_message_falls_back_into_the_old_style():
    modules = [each for folder in ("compiler", "targets") for each in (ROOT / folder).rglob("*.py")]
    texts = [(each.name, text) for each in modules for text in _TEXT.findall(each.read_text())]
    assert len(texts) > 50_000
    found = [(name, text) for name, text in texts for phrase in _IN_MESSAGES if phrase in text]
    assert not found


_PARTICIPLE = re.compile(r"(^|_)(\w+ed|kept|said|known|given|told|brought|held|lost|taken|seen)$")
_NOUNS = frozenset({"deepspeed", "test_deepspeed"})


def test_modules_are_named_by_nouns():
    """A stranger looks for `plan_cache`, not for `remembered`."""
    modules = (
        each
        for folder in ("compiler", "schemas", "targets")
        for each in (ROOT / folder).rglob("*.py")
    )
    named = {each.stem for each in modules if _PARTICIPLE.search(each.stem)}
    assert named - _NOUNS == set()


FILES = sorted(
    file
    for folder in ("compiler", "schemas", "targets", "docs", "benchmarks")
    for file in (ROOT / folder).rglob("*.py")
)
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60


@cache
def functions(file: Path) -> tuple[tuple[str, int], ...]:
    """The functions of a file, each with its lines; parsed once for both tests."""
    return tuple(
        (f"{file.relative_to(ROOT)}:{node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def lines(file: Path) -> int:
    return len(file.read_text("utf-8").splitlines())


def test_no_file_is_long():
    found = {file.relative_to(ROOT).as_posix(): lines(file) for file in FILES}
    assert {name: size for name, size in found.items() if size > MOST_LINES} == {}


def test_no_function_is_long():
    found = {name: size for file in FILES for name, size in functions(file)}
    assert {n: size for n, size in found.items() if size > MOST_LINES_OF_A_FUNCTION} == {}


def test_the_middle_of_functions_stays_short():
    sizes = [size for file in FILES for _, size in functions(file)]
    assert len(sizes) > 1000
    assert median(sizes) < 10
    assert quantiles(sizes, n=20)[-1] <= 30
