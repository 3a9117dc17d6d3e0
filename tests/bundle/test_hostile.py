"""Names of a stranger's spec stay names: in shells, YAML, JSON, Python and Hydra's grammar."""

import ast
import json

import pytest
import yaml

NAMES = {
    "a command": "$(touch {mark})",
    "an end of quotes": "'; touch {mark}; '",
    "Python": "'''; open('{mark}', 'w'); '''",
    "YAML": "[b, &c !!python/object {mark}]",
    "a flag": "--config={mark}",
    "braces": "{{a,b}}\\{mark}",
}
SPEC = {"tunec": 1, "model": "llama-3.1-8b-instruct", "method": "lora", "hardware": "a100-80g-x8"}
TARGETS = {
    "trl": {"watch": True},
    "llamafactory": {},
    "ms-swift": {},
    "axolotl": {},
    "huggingface": {"run": {"script": "my train.py", "arguments": ["{name}"]}},
    "openrlhf": {"data": {"train": "train.jsonl", "samples": 10_000, "sequence": 2048}},
    "unsloth": {"hardware": "a100-80g-x1", "train": {}},
    "verl": {"data": {"train": "{name}.parquet", "samples": 10_000, "sequence": 2048}},
}


def named(value, name):
    """Some data with a name at its place."""
    if isinstance(value, dict):
        return {key: named(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [named(each, name) for each in value]
    return value.replace("{name}", name) if isinstance(value, str) else value


def texts_in(tree):
    """Every text in a tree."""
    if isinstance(tree, dict):
        yield from (each for value in tree.values() for each in texts_in(value))
    elif isinstance(tree, list):
        yield from (each for value in tree for each in texts_in(value))
    elif isinstance(tree, str):
        yield tree


@pytest.mark.parametrize("hostile", NAMES)
@pytest.mark.parametrize("target", TARGETS)
def test_a_name_is_a_name(target, hostile, write, tmp_path):
    name = NAMES[hostile].format(mark="harmed")
    data = {"train": "{name}.jsonl", "samples": 10_000, "sequence": 2048}
    name = name if not name.startswith("-") else f"x{name}"
    base = {**SPEC, "data": data, "train": {"output": "{name}"}, **TARGETS[target]}
    spec = {key: named(value, name) for key, value in base.items()}
    written = write(spec, target)
    found = set()
    for path, text in written.compiled.texts().items():
        if path.endswith((".yaml", ".json")):
            found |= set(texts_in(yaml.safe_load(text) if path[-1] == "l" else json.loads(text)))
        if path.endswith(".py"):
            ast.parse(text)
    called = written.start()
    assert any(name in each for each in (*found, *called.words)), (found, called.words)
    assert not [each for each in tmp_path.rglob("*") if each.name == "harmed"]
