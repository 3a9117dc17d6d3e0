"""What E0701 offers is tried: each repair, put into the spec as it reads, makes it fit."""

import re

import pytest
import yaml
from planning import asked, errors, planned, spec_of

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_mapping
from tunec.targets.registry import REGISTRY

CASES = {
    "visualglm on a P100": {
        "model": "visualglm-6b",
        "method": {"lora": {"rank": 10, "targets": "attention"}},
        "data": {"train": "t.json", "samples": 20, "sequence": 320},
        "hardware": "p100-x1",
        "engine": "deepspeed",
    },
    "full fine-tune of 8B on one A100": {
        "model": "llama-3.1-8b",
        "method": "full",
        "hardware": "a100-80g-x1",
        "pin": {"zero.offload_optimizer": "none"},
    },
    "a long sequence on a small card": {
        "model": "qwen2.5-7b",
        "data": {"train": "t.jsonl", "samples": 10, "sequence": 16384},
        "hardware": "rtx-3090-x1",
        "engine": "none",
    },
    "a small budget": {
        "model": "llama-3.2-3b",
        "hardware": "rtx-4090-x1",
        "budget": {"gpu_memory": "5GiB"},
        "engine": "none",
    },
    "a pin in the way": {
        "model": "llama-3.1-8b",
        "hardware": "rtx-3090-x1",
        "pin": {"activation_checkpointing.mode": "none", "batch.micro": 8, "batch.global": 8},
    },
}


def repairs_of(found):
    (told,) = [each for each in found.diagnostics if each.id == "E0701"]
    assert told.help
    offered = told.help.partition("each of these was planned and fits: ")[2]
    assert offered, told.help
    return offered.split("; ")


def apply(changes, title):
    """The spec with a repair put in, following its words."""
    spec = dict(changes)
    for step in title.split(" and "):
        spec = apply_one(spec, step)
    return spec


def apply_one(spec, step):
    data = dict(spec.get("data", spec_of()["data"]))
    if match := re.fullmatch(r"data\.sequence: (\d+)", step):
        return {**spec, "data": {**data, "sequence": int(match[1])}}
    if step.startswith("the whole device"):
        return {**spec, "budget": {}}
    if match := re.fullmatch(r"no pin\.(.+)", step):
        return {**spec, "pin": {p: v for p, v in spec["pin"].items() if p != match[1]}}
    if match := re.fullmatch(r"pin: \{(.+): (\d+)\}", step):
        return {**spec, "pin": {**spec.get("pin", {}), match[1]: int(match[2])}}
    said = yaml.safe_load(re.sub(r" \((?:nf4|sets [^)]*)\)$", "", step))
    if said.get("method") == "qlora" and isinstance(spec.get("method"), dict):
        return {**spec, "method": {"qlora": next(iter(spec["method"].values()))}}
    return {**spec, **said}


@pytest.mark.parametrize("case", CASES)
def test_each_repair_makes_it_fit(case):
    changes = CASES[case]
    found = planned(**changes)
    assert found.plan is None
    offered = repairs_of(found)
    assert offered
    for title in offered:
        mended = planned(**apply(changes, title))
        assert mended.plan is not None, (title, errors(mended))
        assert mended.memory.required_bytes <= mended.plan.devices.budget


def test_nothing_is_offered_that_changes_nothing():
    for title in repairs_of(planned(**CASES["a small budget"])):
        assert apply(CASES["a small budget"], title) != CASES["a small budget"]


def test_the_sum_of_an_infeasible_layout_is_what_it_needs():
    found = planned(**CASES["full fine-tune of 8B on one A100"])
    (told,) = [each for each in found.diagnostics if each.id == "E0701"]
    total = sum(term.value for term in told.sum)
    needs = float(re.search(r"needs ([\d.]+) GiB", told.message)[1])
    assert total / 2**30 == pytest.approx(needs, abs=0.06)
    # 16 bytes a parameter for 16-bit training with fp32 states (ZeRO, arXiv 1910.02054), less the
    # 2 of the weights themselves, which the smallest layout keeps in host memory
    assert "parameters on cpu" in told.notes[0]
    assert needs > 8.03e9 * 14 / 2**30


def test_what_is_pinned_is_named_where_nothing_fits():
    found = planned(**CASES["a pin in the way"])
    (told,) = [each for each in found.diagnostics if each.id == "E0701"]
    assert any("batch.micro 8" in note for note in told.notes)


def test_a_host_too_small_is_told():
    found = planned(**CASES["visualglm on a P100"])
    (told,) = [each for each in found.diagnostics if each.id == "E0701"]
    assert any("host memory" in note for note in told.notes)


def test_what_a_target_refuses_is_not_offered():
    """DeepSpeed's offload fits FLUX on a V100 of 32 GiB, but SimpleTuner trains no adapter so."""
    flux = {
        "model": "flux.1-dev",
        "data": {"train": "images", "resolution": 1024, "samples": 100},
        "hardware": "rtx-4090-x1",
    }
    assert "hardware: v100-32g-x1" in repairs_of(planned(**flux))
    loaded = load_mapping(spec_of(**flux, targets=["simpletuner"]), targets=REGISTRY.names())
    assert repairs_of(plan(loaded, asked(loaded))) == [
        "method: qlora (nf4)",
        "hardware: a100-40g-x1",
    ]
