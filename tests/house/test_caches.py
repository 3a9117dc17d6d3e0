"""Results are kept by `tunec.schemas.caches` alone, where they can be counted and emptied."""

import re
from pathlib import Path

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
