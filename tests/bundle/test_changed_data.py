"""A bundle is started again after its data changed: the run reads the data that are there now.

`datasets` itself is asked, in the place of the launcher.
"""

import json
import sys

import pytest

SPEC = {
    "tunec": 1,
    "model": "llama-3.1-8b",
    "method": "lora",
    "data": {"train": "my train.jsonl", "samples": 10, "sequence": 128},
    "hardware": "a100-80g-x1",
    "launcher": "torchrun",
}
LOADS = """\
#!{python}
import json, pathlib, yaml
from datasets import load_dataset
file = yaml.safe_load(pathlib.Path("trl/sft.yaml").read_text("utf-8"))
loaded = load_dataset(file["dataset_name"])
rows = {{name: list(split["text"]) for name, split in loaded.items()}}
pathlib.Path({notes!r}).write_text(json.dumps(rows), "utf-8")
"""


@pytest.fixture
def started(write, tmp_path, monkeypatch):
    """What a run of the spec reads when its bundle in a folder is started."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")

    def started(data=SPEC["data"], below="out"):
        written = write({**SPEC, "data": data}, "trl", below=below)
        notes = str(written.stubs / "rows")
        launcher = written.stubs / "torchrun"
        launcher.write_text(LOADS.format(python=sys.executable, notes=notes), "utf-8")
        written.run()
        return json.loads((written.stubs / "rows").read_text("utf-8"))

    return started


def put(file, *texts):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"text": each}) + "\n" for each in texts), "utf-8")


def test_a_changed_file_is_read_anew(started, tmp_path):
    train = tmp_path / "home" / "my train.jsonl"
    put(train, "one")
    assert started() == {"train": ["one"]}
    put(train, "two", "three")
    assert started() == {"train": ["two", "three"]}


def test_a_changed_file_to_evaluate_on_is_read_anew(started, tmp_path):
    put(tmp_path / "home" / "my train.jsonl", "one")
    held = tmp_path / "home" / "held.jsonl"
    data = {**SPEC["data"], "evaluation": "held.jsonl"}
    put(held, "four")
    assert started(data)["test"] == ["four"]
    put(held, "five", "six")
    assert started(data)["test"] == ["five", "six"]


@pytest.mark.parametrize("evaluation", [None, "./held"])
def test_a_folder_with_another_file_is_read_anew(started, tmp_path, evaluation):
    home = tmp_path / "home"
    data = {**SPEC["data"], "train": "./parts", "evaluation": evaluation}
    put(home / "held" / "a.jsonl", "two")
    put(home / "parts" / "a.jsonl", "one")
    assert started(data)["train"] == ["one"]
    put(home / "parts" / "b.jsonl", "three")
    assert sorted(started(data)["train"]) == ["one", "three"]


def test_what_only_submits_to_machines_elsewhere_sets_no_cache(write):
    """kubectl and sky hand on nothing of the environment; sbatch does."""
    mine = {**SPEC, "job": {"volume": "mine"}}
    for cluster, is_set in (("slurm", True), ("kubeflow", False), ("skypilot", False)):
        written = write(mine, "trl", cluster, below=cluster)
        assert ("HF_DATASETS_CACHE" in written.text("run.sh")) == is_set
