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
    "data": {"train": "train.jsonl", "evaluation": "held.jsonl", "samples": 50, "sequence": 128},
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
    with pytest.raises(AssertionError, match="it ran on a CPU, and the plan on a100-80g-x2"):
        tunec(tmp_path, "calibrate", "out/smoke")
    taken_for_gpus(tmp_path / "out/smoke/watch/run.jsonl")
    found = json.loads(tunec(tmp_path, "calibrate", "out/smoke", "--format", "json"))
    verdicts = {each["name"]: each["verdict"] for each in found["must_show"]}
    assert verdicts == {
        **dict.fromkeys(("steps", "evaluation", "save", "resume"), "ok"),
        "memory": "not seen",
    }
    start(tmp_path)
    taken_for_gpus(tmp_path / "out/watch/run.jsonl")
    found = json.loads(tunec(tmp_path, "calibrate", "out", "--format", "json"))
    assert found["run"]["seconds"]["steps"] == 6
    assert len(found["after"]["runs"]) == 2


def taken_for_gpus(file):
    """The records as the planned devices would have written them, a step in a tenth of a second."""
    records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for each in records:
        if "seconds" in each:
            each["seconds"] = 0.1
        if "device" in each:
            each["device"] = "NVIDIA A100-SXM4-80GB"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
