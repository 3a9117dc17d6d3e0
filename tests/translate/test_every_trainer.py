"""Runs as people write them become every other trainer's, and themselves again."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.tables import loaded

from tunec.compiler.lints.environment import environment_of
from tunec.compiler.translate.translate import Translated, translate_texts
from tunec.targets.registry import TARGETS

TRAINERS = ("axolotl", "llamafactory", "ms-swift", "trl")
RUNS = loaded(Path(__file__).with_name("runs.yaml").read_text("utf-8"))
READABLE = TARGETS.readable()
Files = Mapping[str, str]


def translated(files: Files, reader: str, to: str) -> Translated:
    around = environment_of(READABLE, readers=(reader,), world=2)
    return translate_texts(files, [TARGETS.resolve(to)], READABLE, around)


def files_of(found: Translated) -> Files:
    assert found.ok, [e.message for e in found.diagnostics if e.severity == "error"]
    return {each.name: each.text for every in found.artifacts.values() for each in every}


def texts(files: Mapping[str, Any]) -> Files:
    return {
        name: json.dumps(values) if name.endswith(".json") else yaml.safe_dump(values)
        for name, values in files.items()
    }


def flat(values: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf of a document by its path."""
    if isinstance(values, dict) and values:
        for key, each in values.items():
            yield from flat(each, f"{path}.{key}" if path else key)
    else:
        yield path, values


def settings(files: Files) -> dict[str, Any]:
    """What files say, by key; those of DeepSpeed's file stand behind its name."""
    return {
        f"{name}:{path}" if name.endswith(".json") else path: value
        for name, text in files.items()
        for path, value in flat(loaded(text))
    }


@pytest.mark.parametrize("to", TRAINERS)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_the_same_on_the_way_back(name: str, to: str) -> None:
    """Compared with what the trainer's own files become, written by the same rows."""
    run = RUNS[name]
    own, files = run["reader"].partition("@")[0], texts(run["files"])
    there = files_of(translated(files, run["reader"], to))
    back = settings(files_of(translated(there, to, own)))
    before = settings(files_of(translated(files, run["reader"], own)))
    every = before.keys() | back.keys()
    differ = {key: back.get(key) for key in every if before.get(key) != back.get(key)}
    assert differ == run["differs"].get(to, {})
