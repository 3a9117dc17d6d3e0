"""The spec's JSON Schema, and the page of its language: every field is there, all examples load."""

import json

import pytest
import yaml
from jsonschema import Draft202012Validator

from tunec.compiler.frontend import json_schema
from tunec.compiler.frontend.load import load_text
from tunec.compiler.frontend.nodes import plain
from tunec.compiler.frontend.parse import parse
from tunec.compiler.frontend.spec_page import examples, own_fields, rows, sections
from tunec.compiler.ir.slots import SLOTS
from tunec.schemas.hardware import catalogue as hardware
from tunec.schemas.models import catalogue as models
from tunec.schemas.source import dotted
from tunec.schemas.spec import Spec

BASE = """\
tunec: 1
model: llama-3.1-8b
method: lora
data: {train: train.jsonl, sequence: 1024}
hardware: a100-80g-x8
"""
GOOD = {
    "least": "",
    "options": "method: {qlora: {rank: 8, targets: [q_proj], dropout: 5%, also_train: [x]}}",
    "empty method": "method: {lora: }",
    "units": "budget: {gpu_memory: 72GiB, host_memory: 90%}\nbatch: {global: 2k}",
    "numbers": "budget: {gpu_memory: 0.9}\ntrain: {learning_rate: 1e-4, warmup: 100, steps: 5e3}",
    "share": "train: {warmup: 3%, optimizer: lion, epochs: 3}\nprecision: bf16\ndevices: all",
    "sections": "train: {optimizer: {name: adamw_8bit, beta2: 0.95}, warmup: {steps: 3}}",
    "pins": "pin: {zero.stage: 2, zero.reduce_bucket: 5e8, batch.micro: {value: 2, reason: x}}",
    "pin units": "pin: {devices.budget: 70GiB, zero.nvme_path: null, adapter.targets: [q_proj]}",
    "inline": "model: {path: ./m, config: {a: [1]}}\nhardware: {name: x, nodes: [{accelerators: "
    "[{device: l4}], host: {memory: 64GiB, cores: 8}}]}",
    "reference": "batch: {global: 8}\ntrain: {steps: '${batch.global}', output: out/x}",
    "versions": "software: {torch: '2.4'}\nallow: {a-lint: why}\ntargets: [huggingface@4.40]",
    "freeze": "method: {full: {freeze: [vision]}}",
}
BAD = {
    "unknown field": "trian: {}",
    "unknown field within": "train: {epoch: 3}",
    "unknown slot": "pin: {zero.stag: 2}",
    "type": "method: {lora: {rank: eight}}",
    "choice": "train: {schedule: cosin}",
    "pinned choice": "pin: {precision.compute: bfloat16}",
    "pinned type": "pin: {zero.overlap_comm: 3}",
    "unit": "budget: {gpu_memory: 72G}",
    "no unit": "budget: {gpu_memory: 72}",
    "range": "method: {lora: {dropout: 5}}",
    "none": "batch: {global: 0}",
    "two methods": "method: {lora: {}, full: {}}",
    "both lengths": "train: {epochs: 1, steps: 1}",
    "no warm-up": "train: {warmup: {}}",
    "version": "tunec: 2",
    "name": "name: a b",
    "missing": "data: {sequence: 5}",
    "version as number": "software: {torch: 2.4}",
    "no reason": "allow: {x: }",
    "pin without reason": "pin: {zero.stage: {value: 2}}",
    "seed": "train: {seed: -1}",
}


def edited(lines: str) -> str:
    keys = {line.partition(":")[0] for line in lines.splitlines()}
    kept = [line for line in BASE.splitlines() if line.partition(":")[0] not in keys]
    return "\n".join([*kept, *lines.splitlines()]) + "\n"


def errors(text: str) -> list[str]:
    node, faults = parse(text, "f", "spec")
    assert not faults
    found = Draft202012Validator(json_schema.spec_schema()).iter_errors(plain(node))
    return [each.message for each in found]


@pytest.mark.parametrize("name", json_schema.SCHEMAS)
def test_each_is_a_schema(name):
    Draft202012Validator.check_schema(json.loads(json_schema.schema_text(name)))


@pytest.mark.parametrize("name", GOOD)
def test_good_specs_are_valid(name):
    text = edited(GOOD[name])
    assert not load_text(text).diagnostics
    assert not errors(text)


@pytest.mark.parametrize("name", BAD)
def test_bad_specs_are_not(name):
    text = edited(BAD[name])
    assert load_text(text).spec is None
    assert errors(text)


def test_a_spec_that_extends_may_leave_anything_out():
    assert not errors("extends: base.yaml\ndata: {sequence: 512}\n")
    assert not errors("extends: [a.yaml, b.yaml]\nmodel: {stored_dtype: fp16}\n")
    assert errors("extends: base.yaml\ndata: {sequenc: 512}\n")
    assert errors("extends: 3\n")


def test_every_slot_is_in_the_schema_with_its_meaning():
    pins = json_schema.spec_schema()["$defs"]["Pins"]["properties"]
    assert set(pins) == set(SLOTS)
    assert all(pins[path]["description"].startswith(slot.doc) for path, slot in SLOTS.items())


def test_every_field_is_described():
    properties = json_schema.spec_schema()["$defs"]["Spec"]["properties"]
    assert all("description" in schema for schema in properties.values())


def test_the_catalogue_is_valid():
    device = Draft202012Validator(json_schema.SCHEMAS["device"]())
    for name in hardware.device_names():
        assert not list(device.iter_errors(hardware.device(name).model_dump(mode="json")))
    cluster = Draft202012Validator(json_schema.SCHEMAS["cluster"]())
    for name in hardware.cluster_names():
        assert not list(cluster.iter_errors(hardware.cluster(name).model_dump(mode="json")))
    card = Draft202012Validator(json_schema.SCHEMAS["model-card"]())
    for name in models.card_names():
        assert not list(card.iter_errors(models.card(name).model_dump(mode="json")))


def test_a_wrong_device_is_not():
    data = hardware.device("l4").model_dump(mode="json")
    validator = Draft202012Validator(json_schema.SCHEMAS["device"]())
    assert list(validator.iter_errors({**data, "memory": "24G"}))
    assert list(validator.iter_errors({**data, "vendor": "nvidea"}))


def test_the_schema_is_of_the_subset_that_editors_know():
    text = json_schema.schema_text("spec")
    assert "\\A" not in text
    assert "?P<" not in text


PAGE_BASE = {
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
    spec = yaml.safe_load(yaml.safe_dump(PAGE_BASE))
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
