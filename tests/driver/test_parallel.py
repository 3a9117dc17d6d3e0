"""Ranks that share layers or sequences: asked for by pins, refused with the reason."""

import pytest
from planning import asked, errors, spec_of

from tunec.compiler.driver import plan
from tunec.compiler.emit import emit
from tunec.compiler.frontend.load import load_mapping
from tunec.compiler.ir.invariants import breaches
from tunec.targets.registry import REGISTRY

LONG = {"train": "t.jsonl", "samples": 1000, "sequence": 32768, "packing": False}
BASE = {"model": "llama-3.1-8b", "method": "full", "hardware": "h100-80g-x8", "data": LONG}
SHORT = LONG | {"sequence": 4096}


def made(*targets: str, pin=None, **changes):
    given = spec_of(**BASE | changes, pin=pin or {}, targets=list(targets))
    loaded = load_mapping(given)
    assert loaded.spec is not None, [each.message for each in loaded.diagnostics]
    return plan(loaded, asked(loaded))


def decided(*targets: str, **changes):
    found = made(*targets, **changes)
    assert found.plan is not None, [each.message for each in found.diagnostics]
    assert not list(breaches(found.plan))
    return found.plan


@pytest.mark.parametrize("slot", ["tensor", "sequence"])
@pytest.mark.parametrize("ways", [2, 4])
def test_a_pin_makes_groups_that_take_samples_together(slot, ways):
    pin = {f"parallel.{slot}": ways}
    parallel = decided(pin=pin, data=SHORT, batch={"global": 32}).parallel
    assert (parallel.engine, parallel.world, parallel.data) == ("deepspeed", 8, 8 // ways)
    assert getattr(parallel, slot) == ways


def test_unasked_nothing_is_shared():
    found = made(data=SHORT)
    assert (found.plan.parallel.tensor, found.plan.parallel.sequence) == (1, 1)
    assert not found.ledger.winner("parallel.sequence").beat


def test_more_ranks_to_a_sequence_fit_a_longer_one():
    pin = {"batch.micro": 1, "zero.stage": 3, "activation_checkpointing.mode": "layer"}
    needed = [made(pin={"parallel.sequence": ways, **pin}).memory.peak_bytes for ways in (2, 4, 8)]
    assert needed == sorted(needed, reverse=True)


def test_exchanges_take_time():
    shared, alone = made(data=SHORT, pin={"parallel.sequence": 4}), made(data=SHORT)
    split = made(data=SHORT, pin={"parallel.tensor": 4})
    assert shared.time.terms["sequence parallel exchange"] > 0
    assert split.time.terms["tensor parallel exchange"] > 0
    assert "sequence parallel exchange" not in alone.time.terms


@pytest.mark.parametrize(
    ("pin", "changes", "reason"),
    [
        ({"parallel.tensor": 3}, {}, "32 attention heads do not divide by 3"),
        ({"parallel.tensor": 16}, {}, "groups of 16 ranks do not divide nodes of 8 devices"),
        ({"parallel.tensor": 2, "parallel.sequence": 2}, {}, "tensor or sequence"),
        ({"parallel.tensor": 2, "zero.stage": 3}, {}, "which splits the same weights"),
        ({"parallel.tensor": 2}, {"method": "lora"}, "hold adapters"),
        ({"parallel.tensor": 2}, {"engine": "fsdp"}, "only DeepSpeed splits"),
        ({"parallel.tensor": 2}, {"model": "phi-4"}, "the family phi3"),
        ({"parallel.sequence": 8}, {"model": "qwen2.5-7b"}, "28 heads, 4 of keys"),
        ({"parallel.sequence": 2}, {"engine": "ddp"}, "only DeepSpeed splits"),
        ({"parallel.sequence": 2}, {"data": LONG | {"packing": True}}, "packed texts"),
        ({"parallel.sequence": 2}, {"attention": "eager"}, "eager attention"),
        ({"parallel.sequence": 4}, {"data": LONG | {"sequence": 4098}}, "4098 tokens"),
        ({"parallel.sequence": 2}, {"software": {"deepspeed": "0.17.6"}}, "from 0.18.2 on"),
        ({"parallel.sequence": 2}, {"software": {"transformers": "4.57.6"}}, "from 5.0 on"),
    ],
)
def test_what_cannot_be_shared_is_refused_at_the_pin(pin, changes, reason):
    found = made(pin=pin, **changes)
    (told,) = [each for each in found.diagnostics if each.id == "E0702"]
    assert any(reason in note for note in told.notes), told.notes
    assert {f"pin.{path}" for path in pin} <= {label.path for label in told.labels}


def files_of(*targets: str, **changes):
    found = made(*targets, **changes)
    assert not errors(found)
    written = {}
    for name in targets:
        target, version = REGISTRY.resolve(name, {})
        artifacts, faults = emit(target, found.plan, version)
        assert not [each for each in faults if each.severity == "error"], faults
        written |= {each.name: each.text for each in artifacts}
    return written


def test_accelerate_says_that_ranks_share_a_sequence():
    files = files_of("trl", "launch", pin={"parallel.sequence": 4})
    said = files["accelerate.yaml"]
    for line in (
        "parallelism_config_dp_shard_size: 2",
        "parallelism_config_sp_size: 4",
        "parallelism_config_sp_attn_implementation: sdpa",
    ):
        assert line in said
    assert "pad_to_multiple_of: 4" in files["sft.yaml"]
    assert "train_batch_size" not in files["ds_config.json"]


def test_deepspeed_says_that_ranks_share_layers():
    for target in ("huggingface", "deepspeed"):
        files = files_of(target, pin={"parallel.tensor": 2}, data=SHORT)
        assert '"autotp_size": 2' in files["ds_config.json"]
        assert '"train_batch_size"' not in files["ds_config.json"], "DeepSpeed counts all ranks"


def test_another_launcher_cannot_say_it():
    found = made("trl", "launch", pin={"parallel.sequence": 2}, launcher="torchrun")
    assert errors(found) == ["torchrun cannot express that 2 ranks share a sequence"]


@pytest.mark.parametrize(
    ("target", "offers"), [("trl", True), ("huggingface", True), ("deepspeed", False)]
)
def test_sharing_sequences_is_offered_where_the_target_takes_it(target, offers):
    found = made(target, hardware="a100-40g-x8", data=LONG | {"sequence": 131072})
    (told,) = [each for each in found.diagnostics if each.id == "E0701"]
    assert ("pin.parallel.sequence=" in (told.help or "")) == offers
