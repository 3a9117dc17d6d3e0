"""A bundle that is read again gives the plan that it was written for, without a fault."""

import json

import pytest
import yaml
from tests.cli.shell import Shell

SPEC = {
    "tunec": 1,
    "model": "llama-3.1-8b-instruct",
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


def test_names_of_digits_stay_names(tunec, tmp_path):
    job = {"queue": "2024", "account": "00042"}
    spec = {**SPEC, "name": "007", "targets": ["trl", "slurm"], "job": job}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    assert tunec("compile", "spec.yaml", "-o", "out").code == 0
    read = tunec("init", "--hardware", "h100-x2", "--from", "out", "-o", "again.yaml")
    assert read.code == 0, read.err
    again = yaml.safe_load((tmp_path / "again.yaml").read_text())
    assert again["name"] == "007"
    assert {name: again["job"][name] for name in job} == job


def test_a_file_that_starts_nothing_is_refused(tunec, tmp_path):
    (tmp_path / "x.sh").write_text("echo hello\n")
    for command in (("init", "--from", "x.sh"), ("translate", "x.sh", "--to", "trl")):
        refused = tunec(*command)
        assert refused.code == 1
        assert "no file configures or starts a trainer" in refused.err


def test_a_folder_that_is_no_bundle_is_refused(tunec, tmp_path):
    (tmp_path / "some").mkdir()
    for asked in (("init", "--from", "some"), ("translate", "some", "--to", "deepspeed")):
        told = tunec(*asked)
        assert (told.code, told.out) == (1, "")
        assert "error[E0201]: some is a folder" in told.err
        assert "name the files of one run" in told.err


@pytest.mark.parametrize("said", ["filename", "parquet", None])
def test_captions_stay_where_a_file_of_simpletuner_has_them(tunec, tmp_path, said):
    """SimpleTuner's default is the image's name; tunec itself writes that captions are in texts."""
    spec = (
        "{tunec: 1, model: sdxl, method: lora, data: {train: images, samples: 9, resolution: 512}"
    )
    (tmp_path / "s.yaml").write_text(f"{spec}, hardware: rtx-4090-x1, targets: [simpletuner]}}")
    assert tunec("compile", "s.yaml", "-o", "old").code == 0
    file = tmp_path / "old/simpletuner/config/config.json"
    values = json.loads(file.read_text())
    assert values.pop("caption_strategy") == "textfile"
    file.write_text(json.dumps(values | ({"caption_strategy": said} if said else {})))
    folder = file.parent
    files = (str(folder / name) for name in ("config.json", "multidatabackend.json"))
    assert tunec("translate", *files, "--to", "simpletuner", "-o", "new").code == 0
    new = json.loads((tmp_path / "new/simpletuner/config/config.json").read_text())
    assert new["caption_strategy"] == (said or "filename")
