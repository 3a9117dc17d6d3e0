"""Data that do not fill a batch: a warning, or an error where the trainer makes no step of them."""

import pytest
import yaml
from tests.driver.planning import spec_of

import tunec


def told(target, samples, **changes):
    file = "train.parquet" if target == "verl" else "train.jsonl"
    data = {"train": file, "samples": samples, "sequence": 1024}
    spec = spec_of(data=data, batch={"global": 8}, hardware="a100-80g-x4", **changes)
    found = tunec.compile(yaml.safe_dump(spec), targets=[target]).diagnostics
    return {each.id: each for each in found if each.id in ("few-samples", "E0809")}


@pytest.mark.parametrize(
    ("target", "samples", "code"),
    [
        ("verl", 7, "E0809"),
        ("openrlhf", 3, "E0809"),
        ("nemo-automodel", 3, "E0809"),
        ("nemo-automodel", 4, "few-samples"),
        ("trl", 3, "few-samples"),
        ("ms-swift", 3, "few-samples"),
        ("llamafactory", 3, "few-samples"),
        ("verl", 8, None),
        ("trl", 8, None),
    ],
)
@pytest.mark.parametrize("train", [{"epochs": 3}, {"steps": 7}])
def test_few_samples_are_told_by_what_the_trainer_makes_of_them(target, samples, code, train):
    found = told(target, samples, train=train)
    assert set(found) == ({code} if code else set())
    if code == "E0809":
        assert f"{target} " in found[code].message
        assert f"lower batch.global to {samples} or less" in found[code].help
