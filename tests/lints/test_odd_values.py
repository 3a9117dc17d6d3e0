"""Values of any type at any key: whatever a file says, the command line answers."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.lints.lint_asking import lint
from tests.lints.lint_pages import Example, examples

from tunec.compiler.lints.index import rule_names

VALUES = (
    *("abc", "8", "1e-4", "auto", "", None, True, False, -1, 0, 1.5, 10**30, float("inf")),
    *([], [1, "a"], {}, {"a": {"b": 1}}),
)
COUNT = 60
Path_ = tuple[str | int, ...]


def paths(tree: Any, before: Path_ = ()) -> Iterator[Path_]:
    """The path of everything in a tree of mappings and lists."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*before, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*before, key))


def written(example: Example) -> dict[str, Any]:
    """The files of an example that hold a mapping or a list, as values."""
    data = {
        name: yaml.safe_load(text)
        for name, text in example.files.items()
        if name.endswith((".json", ".yaml"))
    }
    return {name: each for name, each in data.items() if isinstance(each, dict | list) and each}


def changed(draw: random.Random) -> tuple[str, Example, dict[str, str]]:
    """An example of a page with one value that is exchanged, and what was done, in words."""
    while True:
        name = draw.choice(sorted(rule_names()))
        example = draw.choice(list(examples(name)))
        files = written(example)
        if not files:
            continue
        file = draw.choice(sorted(files))
        tree, value = deepcopy(files[file]), deepcopy(draw.choice(VALUES))
        path = draw.choice(list(paths(tree)))
        holder = tree
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value
        text = json.dumps(tree) if file.endswith(".json") else yaml.safe_dump(tree, sort_keys=False)
        return f"{name} {file} {path} {value!r}", example, {**example.files, file: text}


@pytest.mark.parametrize("start", [1, 2])
def test_no_value_breaks_a_rule(start: int, tmp_path: Path) -> None:
    draw = random.Random(start)  # noqa: S311  the same examples each time
    for number in range(COUNT):
        what, example, files = changed(draw)
        answer = lint(tmp_path / str(number), files, example.arguments)
        assert answer.code in (0, 1, 2), what
        assert "Traceback" not in answer.err, f"{what}\n{answer.err}"


@pytest.mark.parametrize(("batch", "nearest"), [(566_686_911, 7), (2**61 - 1, None)])
def test_a_group_is_looked_for_near_the_requested_one(
    batch: int, nearest: int | None, tmp_path: Path
) -> None:
    """Not among all numbers up to the batch."""
    text = (
        "model_name_or_path: Qwen/Qwen2.5-7B\nreward_funcs: [accuracy_reward]\noutput_dir: out\n"
        f"learning_rate: 1.0e-6\nnum_generations: 8\nper_device_train_batch_size: {batch}\n"
    )
    answer = lint(tmp_path, {"grpo.yaml": text}, ["grpo.yaml", "--world-size", "1"])
    (found,) = [each for each in answer.findings if each["id"] == "generations-do-not-divide"]
    assert found["help"] == (f"write num_generations: {nearest}" if nearest else "raise the batch")
