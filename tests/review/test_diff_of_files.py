"""A change of existing trainer files is told by what it does to their run."""

import subprocess
from pathlib import Path

import pytest

TRAIN = """\
model_name_or_path: meta-llama/Llama-3.1-8B
dataset_name: org/set
output_dir: out
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
learning_rate: 2.0e-5
max_length: 2048
bf16: true
dataloader_drop_last: false
deepspeed: ds_config.json
"""
DEEPSPEED = """\
{
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 2},
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto"
}
"""
ON = ("--hardware", "a100-80g-x8", "--set", "adapter.kind=none")


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def files(tmp_path: Path, monkeypatch) -> Path:
    (tmp_path / "train.yaml").write_text(TRAIN, "utf-8")
    (tmp_path / "ds_config.json").write_text(DEEPSPEED, "utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


def test_decisions_memory_and_time_with_the_places_in_the_files(tunec, files):
    edit(files / "train.yaml", "batch_size: 2", "batch_size: 4")
    edit(files / "ds_config.json", '"stage": 2', '"stage": 3')
    found = tunec("diff", "main..", "train.yaml", "ds_config.json", *ON, "--format", "json").json
    (run,) = found["specs"]
    assert (run["spec"], found["class"]) == ("train.yaml with ds_config.json", "breaking")
    keys = [(each["path"], each["old"], each["new"], each["line"]) for each in run["intent"]]
    assert keys == [("per_device_train_batch_size", 2, 4, 4), ("zero_optimization.stage", 2, 3, 3)]
    (effect,) = run["groups"][0]["effects"]
    decided = {s: (e["old"], e["new"], e["reason"]) for s, e in effect["decisions"].items()}
    assert decided["batch.micro"] == (2, 4, "train.yaml:4")
    assert decided["zero.stage"] == (2, 3, "ds_config.json:3")
    assert decided["batch.global"][:2] == (64, 128)
    assert effect["new"]["required_bytes"] < effect["old"]["required_bytes"]
    assert effect["new"]["step_seconds"] > effect["old"]["step_seconds"]
    failed = tunec("diff", "main..", "train.yaml", *ON, "--fail-on", "breaking", "--files")
    assert failed.code == 1
    assert "together with zero.reduce_scatter, " in failed.out
    assert "+per_device_train_batch_size: 4" in failed.out
    assert str(files) not in failed.out


def test_a_run_that_no_longer_fits(tunec, files):
    edit(files / "train.yaml", "batch_size: 2", "batch_size: 64")
    found = tunec("diff", "main..", "train.yaml", *ON)
    assert "a100-80g-x8: breaking" in found.out
    assert "no longer fits\n" in found.out
    assert "batch.micro" in found.out


def test_why_there_is_no_account_is_told(tunec, files):
    edit(files / "train.yaml", "batch_size: 2", "batch_size: 4")
    edit(files / "train.yaml", "drop_last: false", "drop_last: true")
    text = tunec("diff", "main..", "train.yaml").out
    assert "memory and time are not compared: no file gives the hardware: use --hardware" in text
    assert "not judged: dataloader_drop_last" in text
    assert "batch.micro                        2 -> 4" in text
    assert "memory of a device" not in text
    unable = tunec("diff", "main..", "train.yaml", "--hardware", "t4-x1", *ON[2:])
    assert "not compared: precision.compute cannot be bf16: Tesla T4" in unable.out


def test_a_key_of_unknown_effect_is_not_called_none(tunec, files):
    edit(files / "train.yaml", "drop_last: false", "drop_last: true")
    found = tunec("diff", "main..", "train.yaml", *ON, "--fail-on", "performance")
    assert found.out.startswith("train.yaml: effect unknown\n")
    assert found.code == 0


def test_new_contradictions_are_errors_at_their_places(tunec, files):
    edit(
        files / "ds_config.json", '"gradient_accumulation_steps": "auto"', '"gradient_clipping": 2'
    )
    edit(files / "train.yaml", "bf16: true", "bf16: true\nmax_grad_norm: 1.0")
    found = tunec("diff", "main..", "train.yaml", *ON)
    assert "the files set optimizer.max_grad_norm to two values" in found.err, found
    assert " --> train.yaml:9:16" in found.err
    assert found.out.startswith("train.yaml: effect unknown\n")
    assert "tunec-" not in found.err


def test_two_files_of_other_names(tunec, files):
    (files / "other.yaml").write_text(TRAIN.replace("2.0e-5", "1.0e-5"), "utf-8")
    found = tunec("diff", "train.yaml", "other.yaml").out
    assert "learning_rate: 2.0e-5 -> 1.0e-5  (other.yaml:6:1)" in found
    assert found.count(" -> ") == 2, "the key and its slot"
    assert tunec("diff", "train.yaml", "train.yaml").out.startswith("nothing changes")


def test_what_cannot_be_read_or_is_gone(tunec, files):
    git(files, "rm", "-qf", "--cached", "ds_config.json")
    (files / "train.yaml").write_text(": : [\n", "utf-8")
    broken = tunec("diff", "main..", "train.yaml")
    assert (broken.code, broken.out) == (1, "train.yaml: cannot be compared\n")
    assert "train.yaml:1:1" in broken.err
    (files / "train.yaml").unlink()
    assert tunec("diff", "main..", "train.yaml").out == "train.yaml: gone\n"
    assert tunec("diff", "main..", "nowhere.yaml").code == 2
    assert tunec("diff", "nowhere.yaml", "train.yaml").code == 1
