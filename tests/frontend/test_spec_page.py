"""The page of the spec's language: every field is there, and every example loads."""

import pytest
import yaml

from tunec.compiler.frontend.load import load_text
from tunec.compiler.frontend.spec_page import examples, own_fields, rows, sections
from tunec.schemas.source import dotted
from tunec.schemas.spec import Spec

BASE = {
    "tunec": 1,
    "model": "llama-3.1-8b",
    "method": "lora",
    "data": {"train": "train.jsonl", "sequence": 2048},
    "hardware": "a100-80g-x8",
}
INLINE = {
    "run": {"script": "finetune.py"},
    "model": {"path": "my-org/my-model", "config": "./config.json"},
    "hardware": {
        "name": "ours",
        "nodes": [
            {"accelerators": [{"device": "rtx-4090"}], "host": {"memory": "64GiB", "cores": 8}}
        ],
        "network": {"kind": "ethernet", "bandwidth": "25Gbit/s"},
    },
    "hardware.network": {"kind": "ethernet", "bandwidth": "25Gbit/s"},
    "hardware.nodes.link": {"kind": "pcie", "bandwidth": "32GB/s"},
    "hardware.nodes.host.nvme": {
        "path": "/x",
        "capacity": "1TB",
        "read": "1GB/s",
        "write": "1GB/s",
    },
    "objective.grpo": {"rewards": ["accuracy_reward"]},
    "data.train": [{"path": "trl-lib/Capybara"}],
    "data.evaluation": {"path": "openai/gsm8k"},
}
"""What stands around a field, where the mapping that it is in needs more fields."""
LISTS = {"data.train", "hardware.nodes", "hardware.nodes.accelerators"}
FIELDS = [dotted((*path, name)) for path, shape in sections() for name in own_fields(shape)]


def with_example(path: str, value) -> dict:
    """A spec with a value at a path."""
    spec = yaml.safe_load(yaml.safe_dump(BASE))
    here, parts = spec, path.split(".")
    for at, part in enumerate(parts[:-1], 1):
        inner = ".".join(parts[:at])
        if not isinstance(here.get(part), dict | list):
            here[part] = yaml.safe_load(yaml.safe_dump(INLINE.get(inner, {})))
        here = here[part][0] if inner in LISTS else here[part]
    here[parts[-1]] = value
    return spec


def test_every_field_has_an_example_and_every_example_a_field():
    assert set(examples()) == set(FIELDS)
    assert len(FIELDS) > 100
    shapes = {shape for _, shape in sections()}
    assert Spec in shapes


@pytest.mark.parametrize("path", FIELDS)
def test_every_example_loads(path, tmp_path):
    value = examples()[path]
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama"}')
    text = yaml.safe_dump(with_example(path, value), sort_keys=False)
    text = text.replace("'1e-4'", "1e-4").replace("'1e-6'", "1e-6")
    loaded = load_text(text, base=tmp_path)
    found = [each for each in loaded.diagnostics if each.severity == "error"]
    if path == "calibration":
        assert [each.primary.path for each in found] == ["calibration"], "no such file"
        return
    assert found == [], text
    assert loaded.spec is not None


def test_the_page_has_a_row_for_each_field():
    made = [row for path, shape in sections() for row in rows(path, shape)]
    assert len(made) == len(FIELDS)
    for name, kind, _, meaning, example in made:
        assert all((name, kind, meaning, example))
