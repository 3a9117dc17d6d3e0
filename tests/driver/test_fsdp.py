"""FSDP as an engine: searched when it is asked for, and only then."""

import pytest

from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.ir.invariants import breaches

SPEC = """\
tunec: 1
model: {model}
method: {method}
data: {{train: train.jsonl, samples: 64k, sequence: {sequence}}}
hardware: {hardware}
batch: {{global: 32}}
{more}
"""


def planned(tmp_path, more="engine: fsdp", **changes):
    values = {
        "model": "llama-3.1-8b",
        "method": "full",
        "sequence": 4096,
        "hardware": "a100-80g-x8",
    }
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC.format(more=more, **{**values, **changes}), "utf-8")
    return plan(load_spec(file))


@pytest.mark.parametrize("method", ["full", "lora"])
def test_unasked_it_is_not_considered(tmp_path, method):
    found = planned(tmp_path, "", method=method)
    assert found.plan.parallel.engine != "fsdp"
    assert found.plan.fsdp.version == 0
    beaten = found.ledger.winner("parallel.engine").beat
    assert "fsdp" not in {other.value for other in beaten}
    assert not found.ledger.winner("fsdp.sharding").beat


@pytest.mark.parametrize(
    "more", ["engine: fsdp", "pin: {parallel.engine: fsdp}", "pin: {fsdp.version: 2}"]
)
def test_asked_it_is_chosen_with_everything_that_follows(tmp_path, more):
    found = planned(tmp_path, more).plan
    assert found.parallel.engine == "fsdp"
    assert found.fsdp.version == 2
    assert found.fsdp.wrap == "transformer"
    assert found.launch.launcher == "accelerate"
    assert (found.states.weights, found.states.trainable) == ("bf16", "fp32")
    assert found.states.autocast
    assert list(breaches(found)) == []


def test_fewer_devices_shard_more(tmp_path):
    eight, four = (
        planned(tmp_path, hardware=f"a100-80g-x{count}").plan.fsdp.sharding for count in (8, 4)
    )
    assert (eight, four) == ("grad_op", "full")


def test_layers_recompute_by_its_own_wrapper(tmp_path):
    found = planned(tmp_path, "engine: fsdp\npin: {activation_checkpointing.mode: layer}").plan
    assert found.fsdp.checkpointing
    assert not found.activation_checkpointing.reentrant
    reentrant = "engine: fsdp\npin: {activation_checkpointing.mode: layer, "
    broken = planned(tmp_path, f"{reentrant}activation_checkpointing.reentrant: true}}")
    assert not broken.ok


@pytest.mark.parametrize(
    ("software", "version", "state_dict"),
    [
        ('{transformers: "4.57.6"}', 1, "full"),
        ('{accelerate: "1.4.0"}', 1, "full"),
        ('{transformers: "5.6.2"}', 2, "sharded"),
        ('{accelerate: "1.6.0"}', 2, "sharded"),
        ('{transformers: "5.23.0", accelerate: "1.15.0"}', 2, "full"),
    ],
)
def test_the_version_follows_from_the_releases(tmp_path, software, version, state_dict):
    found = planned(tmp_path, f"engine: fsdp\nsoftware: {software}").plan
    assert (found.fsdp.version, found.fsdp.state_dict) == (version, state_dict)


@pytest.mark.parametrize(
    ("more", "changes", "reason"),
    [
        ("engine: fsdp", {"hardware": "a100-80g-x1"}, "nothing to shard over"),
        ("engine: fsdp\npin: {fsdp.sharding: hybrid}", {}, "in which hybrid shards fully"),
        ("engine: fsdp", {"method": "qlora"}, "pin quantization.storage"),
        ("engine: fsdp", {"method": "int8_lora"}, "int8 weights"),
        ("engine: fsdp\npin: {fsdp.version: 2, fsdp.sharding: hybrid}", {}, "no layout can run"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(tmp_path, more, changes, reason):
    found = planned(tmp_path, more, **changes)
    said = [each.message for each in found.diagnostics if each.severity == "error"]
    said += [note for each in found.diagnostics for note in each.notes]
    assert any(reason in text for text in said), said


def test_packed_weights_are_sharded_in_a_float_dtype(tmp_path):
    more = "engine: fsdp\npin: {quantization.storage: bf16}"
    found = planned(tmp_path, more, method="qlora", hardware="rtx-3090-x4").plan
    assert found.parallel.engine == "fsdp"


def test_hybrid_stays_inside_a_node(tmp_path):
    """Twice the nodes take as much of a device, while full sharding takes less."""
    cluster = "a100-80g-x8"
    more = "engine: fsdp\npin: {{fsdp.version: 1, fsdp.sharding: {}, batch.micro: 1}}"
    full = planned(tmp_path, more.format("full"), hardware=cluster).memory
    assert full.layout.fsdp.sharding == "full"
    from dataclasses import replace

    from tunec.compiler.analyses.memory.account import account

    layout = full.layout
    wider = replace(layout, nodes=2, parallel=replace(layout.parallel, world=16, data=16))
    hybrid = replace(wider, fsdp=replace(layout.fsdp, sharding="hybrid"))
    assert account(full.workload, hybrid).terms == account(full.workload, layout).terms
    assert account(full.workload, wider).peak_bytes < account(full.workload, hybrid).peak_bytes
