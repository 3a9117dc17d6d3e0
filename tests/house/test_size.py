"""What must not grow: long files, long functions, and the middle of both."""

import ast
from functools import cache
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).parents[2]
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
