"""Every catalogue model on unlike hardware by every method: a plan, or errors that say why."""

import pytest
from planning import planned

from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.ir.invariants import breaches
from tunec.schemas.hardware.catalogue import cluster_names
from tunec.schemas.models.catalogue import card, card_names

HARDWARE = ("a100-80g-x8", "t4-x1", "titan-rtx-gtx-1080-ti", "h100-x8-n4", "frontier")
METHODS = ("full", "lora", "qlora", "int8_lora")


def data_of(model):
    kind = derive(card(model).config).kind
    if kind == "diffusion":
        return {"train": "images.json", "samples": 1000, "resolution": 512}
    return {"train": "train.jsonl", "samples": 1000, "sequence": 1024}


def check(found):
    assert (found.plan is None) != found.ok
    if found.plan is None:
        assert all(each.message and each.labels for each in found.diagnostics)
        return
    assert not list(breaches(found.plan))
    assert found.memory.required_bytes <= found.plan.devices.budget
    assert found.memory.host.peak_bytes <= found.plan.devices.host_budget
    assert found.time.step_seconds > 0
    assert found.plan.adapter.trainable_parameters > 0


@pytest.mark.parametrize("model", card_names())
def test_every_model_plans_or_says_why_not(model):
    feasible = 0
    for hardware in HARDWARE:
        for method in METHODS:
            found = planned(model=model, method=method, hardware=hardware, data=data_of(model))
            check(found)
            feasible += found.ok
    # LoRA on 32 H100 at least: even 70B fits there by ZeRO-3
    assert feasible


@pytest.mark.parametrize("hardware", cluster_names())
def test_every_cluster_plans_or_says_why_not(hardware):
    for method in METHODS:
        check(planned(hardware=hardware, method=method))
    for use in ("best", "all"):
        check(planned(hardware=hardware, devices=use))


@pytest.mark.parametrize("hardware", cluster_names())
def test_a_small_lora_fits_every_cluster(hardware):
    found = planned(hardware=hardware, model="qwen2.5-0.5b", batch={})
    assert found.ok, [each.message for each in found.diagnostics]
