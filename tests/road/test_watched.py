"""A short bundle is started before the long one, and judged; the long one is watched."""

import json

import pytest
import yaml
from tests.road.bundle_run import start, tunec
from tests.road.materials import write_model, write_samples

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("needs_trl")]

SPEC = {
    "tunec": 1,
    "name": "tiny",
    "model": "./tiny",
    "method": "lora",
    "data": {
        "train": "train.jsonl",
        "evaluation": "held.jsonl",
        "samples": 50,
        "sequence": 128,
    },
    "hardware": "a100-80g-x2",
    "engine": "ddp",
    "batch": {"global": 8},
    "train": {"learning_rate": 1e-3, "epochs": 1, "warmup": {"share": 0.1}},
    "watch": True,
    "targets": ["trl"],
}


@pytest.fixture
def needs_trl():
    pytest.importorskip("trl")


def test_a_short_run_shows_what_it_must_and_both_are_calibrated(tmp_path):
    write_model(tmp_path / "tiny")
    write_samples(tmp_path / "train.jsonl", "text", 50)
    write_samples(tmp_path / "held.jsonl", "text", 10, seed=1)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    tunec(tmp_path, "compile", "spec.yaml", "-o", "out", "--smoke")
    start(tmp_path, entry="out/smoke/run.sh")
    found = json.loads(tunec(tmp_path, "calibrate", "out/smoke", "--format", "json"))
    verdicts = {each["name"]: each["verdict"] for each in found["must_show"]}
    assert verdicts == {
        **dict.fromkeys(("steps", "evaluation", "save", "resume"), "ok"),
        "memory": "not seen",
    }
    start(tmp_path)
    found = json.loads(tunec(tmp_path, "calibrate", "out", "--format", "json"))
    assert found["run"]["seconds"]["steps"] == 6
    assert len(found["after"]["runs"]) == 2
