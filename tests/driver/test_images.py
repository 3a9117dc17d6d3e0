"""How many images a sample holds where the spec does not say so."""

import pytest
from planning import planned

from tunec.targets.huggingface.training import RUNTIME

DATA = {"train": "train.jsonl", "samples": 1000, "sequence": 1024}


@pytest.mark.parametrize(
    ("model", "said", "images"),
    [
        ("qwen2.5-vl-7b", {}, 1),
        ("qwen2.5-vl-7b", {"packing": True}, 0),
        ("qwen2.5-vl-7b", {"format": "alpaca"}, 0),
        ("qwen2.5-vl-7b", {"format": "messages"}, 1),
        ("qwen3.5-4b", {}, 0),
        ("lightonai/LightOnOCR-2-1B-base", {}, 1),
        ("mistral-small-3.1-24b", {}, 0),
        ("ATH-MaaS/OvisOCR2", {}, 1),
        ("qwen3.5-0.8b", {}, 0),
        ("gemma-3-4b", {}, 0),
        ("gemma-3-4b", {"images": {}}, 1),
    ],
)
def test_images_of_a_sample(model, said, images):
    found = planned(model=model, data={**DATA, **said}, hardware="h100-sxm-x2")
    assert found.ok
    assert found.plan.data.images == images
    assert found.plan.data.image_tokens == 0 or images


def test_packed_samples_take_no_images():
    asked = {**DATA, "packing": True, "images": {"per_sample": 1}}
    assert not planned(model="gemma-3-4b", data=asked, hardware="h100-sxm-x2").ok


@pytest.mark.parametrize(
    ("method", "images", "searched"), [("full", 0, True), ("full", 1, False), ("lora", 0, False)]
)
def test_ddp_looks_for_the_parameters_of_a_tower_that_no_sample_reaches(method, images, searched):
    data = {**DATA, "images": {"per_sample": images}}
    made = {"model": "qwen2.5-vl-3b", "method": method, "data": data, "hardware": "h200-x2"}
    found = planned(**made, engine="ddp")
    (row,) = (each for each in RUNTIME if each.keys == ("ddp_find_unused_parameters",))
    assert row.write(found.plan) == {"ddp_find_unused_parameters": searched}
