"""Who imports whom: no circles, nothing relative, nothing heavy, by the text of every module."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("compiler", "schemas", "targets")
FACE = {"tunec": "src/tunec/__init__.py", "tunec.__main__": "src/tunec/__main__.py"}
HEAVY = {
    *("torch", "numpy", "deepspeed", "transformers", "accelerate", "peft", "trl", "diffusers"),
    *("simpletuner", "safetensors", "tokenizers", "huggingface_hub", "datasets", "pandas"),
    *("bitsandbytes", "shtab", "pytest", "hypothesis"),
}
LIVE = ("tunec.compiler.tracing.live", "tunec.compiler.rehearse.live")
VAGUE = {"utils", "util", "helpers", "helper", "common", "constants", "misc"}


def modules() -> dict[str, Path]:
    found = {name: ROOT / path for name, path in FACE.items()}
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            parts = file.relative_to(ROOT).with_suffix("").parts
            name = ".".join(("tunec", *parts)).removesuffix(".__init__")
            found[name] = file
    return found


MODULES = modules()


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports(node: ast.AST, *, lazy: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements below a node; those inside functions only if `lazy`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif is_for_types(child):
            yield from (each for part in child.orelse for each in imports(part, lazy=lazy))
        elif lazy or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from imports(child, lazy=lazy)


@cache
def imported(file: Path, *, lazy: bool) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """The import statements of a file, which is parsed once for all tests here."""
    return tuple(imports(ast.parse(file.read_text("utf-8")), lazy=lazy))


def named(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The modules that an import statement names."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    for alias in statement.names:
        inner = f"{statement.module}.{alias.name}"
        yield inner if inner in MODULES else statement.module or ""


def graph(*, lazy: bool) -> dict[str, set[str]]:
    found = {}
    for name, file in MODULES.items():
        targets = {each for node in imported(file, lazy=lazy) for each in named(node)}
        found[name] = {each for each in targets if each in MODULES and each != name}
    return found


def circle(edges: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as found:
        return list(found.args[1])
    return []


def test_the_whole_house_is_seen():
    edges = graph(lazy=True)
    assert len(MODULES) > 200
    assert "tunec.compiler.driver" in edges["tunec.compiler.cli.compile_command"]
    assert "tunec.targets.registry" in edges["tunec"]


@pytest.mark.parametrize("lazy", [False, True], ids=["at import", "inside functions too"])
def test_no_circle(lazy):
    assert circle(graph(lazy=lazy)) == []


def test_no_circle_between_packages():
    """`compiler.passes` and `compiler.analyses` are parts too: no two may need each other."""
    parts: dict[str, set[str]] = {}
    for name, targets in graph(lazy=True).items():
        own = part(name)
        parts.setdefault(own, set()).update(part(each) for each in targets if part(each) != own)
    assert circle(parts) == []


def part(name: str) -> str:
    return ".".join(name.split(".")[:3])


def test_a_circle_would_be_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []


def test_imports_are_absolute():
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in MODULES.values()
        for node in imported(file, lazy=True)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert found == []


def test_ours_is_imported_by_its_installed_name():
    """`import compiler` works in a checkout and nowhere else."""
    found = [
        f"{name}: {each}"
        for name, file in MODULES.items()
        for node in imported(file, lazy=True)
        for each in named(node)
        if each.split(".")[0] in FOLDERS
    ]
    assert found == []


def test_nothing_heavy_is_imported_at_module_level():
    """But in what runs inside a consumer's own environment, and in what only a trace imports."""
    found = [
        f"{name}: {each}"
        for name, file in MODULES.items()
        if ".consumer" not in name and not name.startswith(LIVE)
        for node in imported(file, lazy=False)
        for each in named(node)
        if each.split(".")[0] in HEAVY
    ]
    assert found == []


def test_what_runs_torch_is_imported_inside_functions_only():
    edges = graph(lazy=False)
    found = [
        f"{name}: {each}"
        for name, targets in edges.items()
        if not name.startswith(LIVE)
        for each in targets
        if each.startswith(LIVE)
    ]
    assert found == []


def test_no_part_imports_what_asks_consumers_on_the_way_to_a_plan():
    edges = graph(lazy=True)
    seen, left = (
        set(),
        ["tunec.__main__", "tunec", *(each for each in MODULES if "_command" in each)],
    )
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += edges[name]
    assert [each for each in seen if ".consumer." in each] == []


def test_no_module_is_named_for_nothing():
    assert [name for name in MODULES if name.rpartition(".")[2] in VAGUE] == []


def test_every_package_and_module_says_what_it_is():
    silent = [
        name
        for name, file in MODULES.items()
        if ast.get_docstring(ast.parse(file.read_text("utf-8"))) is None
    ]
    assert silent == []
