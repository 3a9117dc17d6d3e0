"""Adapters that are merged when training is done, and answers that a layout cannot write."""

import re

import pytest

import tunec

SPEC = {
    "tunec": 1,
    "model": "llama-3.2-1b",
    "method": {"lora": {"merge": "device"}},
    "data": {"train": "train.jsonl", "samples": 1000, "sequence": 1024},
    "hardware": "a100-80g-x8",
}
GRPO = {"grpo": {"rewards": ["accuracy_reward"], "samples": 4, "completion": 256}}


def planned(**changes):
    return tunec.plan({**SPEC, **changes})


def told(found):
    return " ".join(note for each in found.diagnostics for note in (each.message, *each.notes))


def texts(found, target):
    """The files without the digests of spec and plan."""
    files = found.artifacts[target]
    return {each.name: re.sub(r"[0-9a-f]{16}", "", each.text) for each in files}


def test_merging_on_the_device_comes_beside_the_training_state():
    found = planned()
    assert found.plan.adapter.merge == "device"
    held = found.memory.phases["merging"]
    assert {"merged adapters", "optimizer states", "frozen weights"} <= set(held)
    assert "merging" not in planned(method="lora").memory.phases


@pytest.mark.parametrize(("method", "bytes_each"), [("qlora", 14.640869140625), ("int8_lora", 15)])
def test_a_packed_base_is_packed_anew(method, bytes_each):
    """The largest of its weights expanded, the product, the sum twice and what it is packed to."""
    found = planned(method={method: {"merge": "device"}}, hardware="a100-80g-x1")
    assert found.ok
    assert found.memory.phases["merging"]["merged adapters"] == round(bytes_each * 8192 * 2048)


def test_merging_on_the_host_needs_its_ram():
    found = planned(method={"qlora": {"merge": "host"}}, hardware="a100-80g-x1")
    assert found.ok
    assert "merging" not in found.memory.phases
    host = found.memory.host.phases["merging"]
    assert host["base to merge into"] == 2 * found.plan.model.parameters
    assert "merging" not in planned(method="lora").memory.host.phases


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pin": {"zero.stage": 3}}, "adapters merge into whole weights"),
        ({"engine": "fsdp"}, "adapters merge into whole weights"),
    ],
)
def test_merging_on_the_device_needs_whole_weights(changes, words):
    found = planned(**changes)
    assert not found.ok
    assert words in told(found)


def test_merging_is_a_word_for_adapters_alone():
    assert not planned(method={"full": {"merge": "host"}}).ok
    assert planned(method="full").plan.adapter.merge == "never"


@pytest.mark.parametrize("target", ["huggingface", "trl", "deepspeed", "simpletuner"])
def test_the_files_are_those_of_a_run_that_does_not_merge(target):
    model = {"model": "sd3-medium"} if target == "simpletuner" else {}
    data = {"data": {"train": "images"}} if target == "simpletuner" else {}
    spec = {**SPEC, **model, **data}
    merged = tunec.compile(spec, targets=[target])
    plain = tunec.compile({**spec, "method": "lora"}, targets=[target])
    assert merged.ok, told(merged)
    assert texts(merged, target) == texts(plain, target)


def test_adapters_cannot_write_their_answers_under_fsdp_2():
    asked = {"method": "lora", "objective": GRPO, "engine": "fsdp", "software": {"trl": "1.16.0"}}
    found = planned(**asked)
    assert not found.ok or found.plan.fsdp.version == 1
    pinned = planned(**asked, pin={"fsdp.version": 2})
    assert "whose call is what FSDP 2 gathers its root for" in told(pinned)
    vllm = {"grpo": {**GRPO["grpo"], "generator": "vllm_server"}}
    assert planned(**{**asked, "objective": vllm}).ok
    assert planned(**{**asked, "method": "full"}).ok
