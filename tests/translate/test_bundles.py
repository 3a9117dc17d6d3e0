"""A bundle that is read again gives the plan that it was written for, without a fault."""

import json

import pytest
import yaml
from tests.cli.shell import Shell

SPEC = {
    "tunec": 1,
    "model": "llama-3.1-8b",
    "method": "lora",
    "data": {"train": "data/train.jsonl", "samples": 5000, "sequence": 1024},
    "hardware": "h100-x2",
    "train": {"epochs": 2, "learning_rate": 1e-4},
}
FILES = ["huggingface/training_args.yaml", "huggingface/model_args.yaml"]
OWN = {
    "targets": ["huggingface"],
    "run": {"script": "src/train.py", "arguments": FILES},
    "data": {**SPEC["data"], "evaluation": "data/dev.jsonl"},
}
PICTURES = {
    "targets": ["simpletuner"],
    "model": "flux.1-dev",
    "data": {"train": "./pictures", "samples": 500, "resolution": 512},
}
RUNS = {
    "llamafactory": {"targets": ["llamafactory"]},
    "trl by skypilot": {"targets": ["trl", "skypilot"]},
    "axolotl by slurm": {"targets": ["axolotl", "slurm"], "job": {"time": "1h"}},
    "a script": OWN,
    "pictures": PICTURES,
}
SCRIPT = "TrainingArguments(output_dir=where, learning_rate=rate)\n"
"""What the files of the bundle set is known in it only when it runs."""


@pytest.fixture
def tunec(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)


@pytest.mark.parametrize("entry", ["out", "out/run.sh"])
@pytest.mark.parametrize("name", RUNS)
def test_a_bundle_becomes_a_spec_of_the_same_plan(tunec, tmp_path, name, entry):
    spec = {**SPEC, "name": "run", **RUNS[name]}
    (tmp_path / "src").mkdir()
    (tmp_path / "src/train.py").write_text(f"from transformers import *\n{SCRIPT}")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    assert tunec("compile", "spec.yaml", "-o", "out").code == 0
    read = tunec("init", "--hardware", spec["hardware"], "--from", entry, "-o", "again.yaml")
    assert read.code == 0, read.err
    samples = f"data.samples={spec['data']['samples']}"
    old, new = (
        json.loads(tunec("plan", each, "--set", samples, "--format", "json").out)["plan"]
        for each in ("spec.yaml", "again.yaml")
    )
    assert {slot for slot in old if old[slot] != new[slot]} <= {"job.name"}
    found = tunec("lint", "out", "--format", "json")
    assert found.code == 0, found.out


def test_a_file_that_starts_nothing_is_refused(tunec, tmp_path):
    (tmp_path / "x.sh").write_text("echo hello\n")
    for command in (("init", "--from", "x.sh"), ("translate", "x.sh", "--to", "trl")):
        refused = tunec(*command)
        assert refused.code == 1
        assert "no file configures or starts a trainer" in refused.err


def test_a_folder_that_is_no_bundle_is_refused(tunec, tmp_path):
    (tmp_path / "some").mkdir()
    assert tunec("init", "--from", "some").code == 2
