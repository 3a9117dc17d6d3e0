"""Who imports whom: no circles, nothing relative, nothing heavy; and no cache but our own kind."""

import ast
import re
from collections.abc import Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from docs.imports import FOLDERS, graph, imported, modules, statements
from docs.readme import ROOT

HEAVY = {
    *("torch", "numpy", "deepspeed", "transformers", "accelerate", "peft", "trl", "diffusers"),
    *("simpletuner", "safetensors", "tokenizers", "huggingface_hub", "datasets", "pandas"),
    *("bitsandbytes", "shtab", "pytest", "hypothesis"),
}
LIVE = ("tunec.compiler.tracing.live", "tunec.compiler.rehearse.live")
VAGUE = {"utils", "util", "helpers", "helper", "common", "constants", "misc"}


MODULES = modules()


def circle(edges: Mapping[str, Set[str]]) -> list[str]:
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


def test_every_import_statement_is_seen(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        "import one\n"
        "if TYPE_CHECKING:\n    import two\nelse:\n    import three\n"
        "try:\n    import four\nexcept ImportError:\n    import five\n"
        "match 1:\n    case 1:\n        import six\n"
        "class A:\n    def f(self):\n        with self:\n            from seven import g\n"
    )
    assert [*imported(file, lazy=False)] == ["one", "three", "four", "five", "six"]
    assert [*imported(file, lazy=True)] == ["one", "three", "four", "five", "six", "seven"]


def test_imports_are_absolute():
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in MODULES.values()
        for node, _ in statements(file)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert found == []


def test_ours_is_imported_by_its_installed_name():
    """`import compiler` works in a checkout and nowhere else."""
    found = [
        f"{name}: {each}"
        for name, file in MODULES.items()
        for each in imported(file, lazy=True)
        if each.split(".")[0] in FOLDERS
    ]
    assert found == []


def test_nothing_heavy_is_imported_at_module_level():
    """But in what runs inside a consumer's own environment, and in what only a trace imports."""
    found = [
        f"{name}: {each}"
        for name, file in MODULES.items()
        if ".consumer" not in name and not name.startswith(LIVE)
        for each in imported(file, lazy=False)
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


_ROOT = Path(__file__).parents[2]
_OF_PROCESSES = "compiler/rehearse/rank_processes.py"
"""Servers that run, which are ended and not forgotten."""
_BY_HAND = re.compile(
    r"^_?\w+: .*\b(dict|defaultdict)\[.*= (\{\}|dict\(\)|defaultdict\(.*\))$", re.MULTILINE
)
"""A dictionary of a module that begins empty; the linter refuses the caches of functools."""


def test_no_module_fills_a_dictionary_of_its_own():
    files = [p for part in ("compiler", "schemas", "targets") for p in (_ROOT / part).rglob("*.py")]
    assert len(files) > 500
    found = [
        path.relative_to(_ROOT).as_posix()
        for path in files
        if "consumer" not in path.parts and _BY_HAND.search(path.read_text("utf-8"))
    ]
    assert found == [_OF_PROCESSES]
