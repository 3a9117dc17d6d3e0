"""Every catalogue model on unlike hardware by every method: a plan, or errors that say why."""

import pytest
from planning import planned
from tests.cards import one_of_each_family

from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.ir.invariants import breaches
from tunec.schemas.hardware.catalogue import cluster_names
from tunec.schemas.models.catalogue import card, card_names

HARDWARE = ("a100-80g-x8", "t4-x1", "titan-rtx-gtx-1080-ti", "h100-x8-n4", "frontier")
METHODS = ("full", "lora", "qlora", "int8_lora")


def data_of(model):
    found = derive(card(model).config)
    if found.kind == "diffusion":
        return {"train": "images.json", "samples": 1000, "resolution": 512}
    sequence = min(1024, found.context or 1024)
    return {"train": "train.jsonl", "samples": 1000, "sequence": sequence}


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


MODELS = card_names()
CLUSTERS = cluster_names()
CASES = (*(f"method={each}" for each in METHODS), "devices=best", "devices=all")
THERE = ("h100-x8-n4", "lora")
"""Where each model must have a plan: even 70B fits there by ZeRO-3."""


def of_model(model, hardware, method, *, repairing=False):
    """Where nothing fits, what would is sought in the nightly sweep alone."""
    asked = {"model": model, "method": method, "hardware": hardware, "data": data_of(model)}
    return planned(**asked, repairing=repairing)


@pytest.mark.parametrize("model", one_of_each_family(MODELS))
def test_every_model_plans_or_says_why_not(model):
    """On each hardware by one method, by another one for the next model.

    So each family meets each hardware and each method, and these each other, which is where their
    tables and rules meet; every model with all of them meets in the nightly sweep.
    """
    at = MODELS.index(model)
    for step, hardware in enumerate(HARDWARE):
        check(of_model(model, hardware, METHODS[(at + step) % len(METHODS)]))
    found = of_model(model, *THERE)
    check(found)
    assert found.ok


@pytest.mark.nightly
@pytest.mark.parametrize("model", MODELS)
def test_every_model_on_each_hardware_by_each_method(model):
    for hardware in HARDWARE:
        for method in METHODS:
            check(of_model(model, hardware, method, repairing=True))


def of_cluster(hardware, case, *, repairing=False):
    key, value = case.split("=")
    return planned(hardware=hardware, repairing=repairing, **{key: value})


@pytest.mark.parametrize("hardware", CLUSTERS)
def test_every_cluster_plans_or_says_why_not(hardware):
    """In two cases, in others on the next cluster: relatives stand beside each other."""
    at = 2 * CLUSTERS.index(hardware)
    for case in (CASES[at % len(CASES)], CASES[(at + 1) % len(CASES)]):
        check(of_cluster(hardware, case))


@pytest.mark.nightly
@pytest.mark.parametrize("hardware", CLUSTERS)
def test_every_cluster_in_each_case(hardware):
    for case in CASES:
        check(of_cluster(hardware, case, repairing=True))


@pytest.mark.parametrize("hardware", CLUSTERS)
def test_a_small_lora_fits_every_cluster(hardware):
    found = planned(hardware=hardware, model="qwen2.5-0.5b", batch={})
    assert found.ok, [each.message for each in found.diagnostics]


@pytest.mark.parametrize(
    ("model", "attention", "mlp"),
    [
        ("flan-t5-small", {"q", "k", "v", "o"}, {"wi_0", "wi_1", "wo"}),
        ("nemotron-3-nano-30b-a3b", {"q_proj", "k_proj", "v_proj", "o_proj"}, {"up_proj"}),
        ("falcon-h1-0.5b", {"q_proj", "k_proj", "v_proj", "o_proj"}, {"gate_proj"}),
        ("lfm2-1.2b", {"self_attn.out_proj"}, {"w1", "w2", "w3"}),
    ],
)
def test_attention_is_told_from_what_takes_tokens_by_themselves(model, attention, mlp):
    """What a state space or a convolution mixes tokens by is in neither."""
    found = {}
    for asked in ("attention", "mlp"):
        method = {"lora": {"targets": asked}}
        made = planned(model=model, method=method, hardware="h100-80g-x8", data=data_of(model))
        found[asked] = set(made.plan.adapter.targets)
    assert attention <= found["attention"]
    assert mlp <= found["mlp"]
    assert not found["attention"] & found["mlp"]
    assert not any("in_proj" in each for each in (*found["attention"], *found["mlp"]))


@pytest.mark.parametrize(("model", "fits"), [("llama-3.2-1b", False), ("qwen2.5-vl-7b", True)])
def test_only_a_part_that_is_there_is_frozen(model, fits):
    method = {"full": {"freeze": ["vision", "embeddings"]}}
    found = planned(model=model, method=method, hardware="h100-80g-x8", data=data_of(model))
    told = [each.id for each in found.diagnostics if each.severity == "error"]
    assert told == ([] if fits else ["E0802"])


@pytest.mark.parametrize(
    ("model", "parts", "frozen"),
    [
        ("qwen2.5-vl-7b", ["projector", "vision", "projector"], ("vision", "projector")),
        ("qwen2.5-vl-7b", ["text", "vision", "projector"], None),
        ("llama-3.2-1b", ["embeddings", "text"], None),
    ],
)
def test_frozen_parts_have_one_order_and_leave_something_to_train(model, parts, frozen):
    method = {"full": {"freeze": parts}}
    found = planned(model=model, method=method, hardware="h100-80g-x8", data=data_of(model))
    told = [each.message for each in found.diagnostics if each.severity == "error"]
    assert told == ([] if frozen else ["method.full.freeze leaves nothing of this model to train"])
    assert found.plan is None or found.plan.adapter.frozen == frozen
