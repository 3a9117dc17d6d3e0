"""run.sh says where a second start goes on from what the first has left, and only there."""

import pytest

SPEC = {
    "tunec": 1,
    "model": "qwen2.5-7b",
    "method": "lora",
    "data": {"train": "train.jsonl", "samples": 10_000, "sequence": 1024},
    "hardware": "a100-80g-x1",
}
PARQUET = {"data": {**SPEC["data"], "train": "train.parquet"}}
IMAGES = {
    "model": "flux.1-dev",
    "data": {"train": "pictures", "samples": 1000, "resolution": 1024},
}
GOING_ON = [
    ("nemo-automodel", {}, "checkpoint.restore_from", "runs/step_7"),
    ("llamafactory", {}, "resume_from_checkpoint", "runs/checkpoint-7"),
    ("verl", PARQUET, "trainer.resume_mode", "disable"),
    ("simpletuner", IMAGES, "resume_from_checkpoint", "checkpoint-7"),
]


def goes_on(write, target, changed):
    run = write({**SPEC, **changed}, target).text("run.sh")
    return "# started again, the run goes on from the last checkpoint" in run


@pytest.mark.parametrize(("target", "changed", "key", "value"), GOING_ON)
def test_it_is_said_unless_a_key_decides_otherwise(write, target, changed, key, value):
    assert goes_on(write, target, changed)
    assert not goes_on(write, target, {**changed, "extra": {target: {key: value}}})


@pytest.mark.parametrize("target", ["axolotl", "ms-swift", "openrlhf", "trl", "unsloth"])
def test_it_is_not_said_of_programs_that_begin_anew(write, target):
    assert not goes_on(write, target, {})


def test_it_is_not_said_of_a_script_of_the_users_own(write):
    assert not goes_on(write, "nemo-automodel", {"run": {"script": "train.py"}})
