"""FSDP as an engine: searched where it is asked for, or every asked target takes it."""

import pytest
from planning import asked, spec_of
from planning import planned as spec_planned

from tunec.compiler.driver import compile_spec, plan
from tunec.compiler.frontend.load import load_mapping, load_spec
from tunec.compiler.ir.invariants import breaches
from tunec.compiler.passes.fit.search import TIE
from tunec.targets.registry import REGISTRY

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


FULL = {"model": "llama-3.1-8b", "method": "full", "hardware": "h100-x8-n2"}
LONG = {"data": {"train": "train.jsonl", "samples": 1000, "sequence": 8192}}
SHORT = {"data": {"train": "train.jsonl", "samples": 1000, "sequence": 1024}}


def compiled(*targets, **changes):
    """What becomes of a spec with the targets that it asks for."""
    loaded = load_mapping(spec_of(targets=list(targets), **changes), targets=REGISTRY.names())
    return compile_spec(loaded, asked(loaded))


@pytest.mark.parametrize(
    ("targets", "engine"),
    [
        (("trl", "accelerate"), "fsdp"),
        (("huggingface", "launch"), "fsdp"),
        (("deepspeed",), "deepspeed"),
        (("trl", "deepspeed"), "deepspeed"),
        ((), "deepspeed"),
    ],
)
def test_it_is_chosen_where_it_is_faster_and_all_targets_take_it(targets, engine):
    """On two nodes one sample of each device hides little of what ZeRO exchanges after the step."""
    found = compiled(*targets, **FULL, **SHORT, batch={"global": 16})
    assert found.ok
    assert found.planned.plan.parallel.engine == engine
    beaten = {other.value for other in found.planned.ledger.winner("parallel.engine").beat}
    assert ("fsdp" in beaten | {engine}) == ("deepspeed" not in targets and bool(targets))


def test_where_nothing_else_fits_it_is_taken():
    short = {"data": {"train": "train.jsonl", "samples": 1000, "sequence": 2048}}
    cards = {"model": "qwen2.5-32b", "method": "full", "hardware": "v100-32g-x8"}
    by_sgd = {**cards, **short, "train": {"optimizer": "sgd"}}
    assert not compiled(**by_sgd).ok
    assert compiled("trl", "accelerate", **by_sgd).planned.plan.fsdp.offload_params


def test_a_little_faster_is_not_enough():
    """Checkpoints of another form are worth what the account may be off by (decision 10)."""
    given = {**FULL, **LONG, "model": "mistral-small-24b", "hardware": "h100-x8"}
    free, by_fsdp = compiled("trl", **given), compiled("trl", engine="fsdp", **given)
    assert free.planned.plan.parallel.engine == "deepspeed"
    assert 1 < free.planned.time.step_seconds / by_fsdp.planned.time.step_seconds < 1 + TIE


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
    budget = "engine: fsdp\nbudget: {gpu_memory: 100%}"
    eight, four = (
        planned(tmp_path, budget, hardware=f"a100-80g-x{count}").plan.fsdp.sharding
        for count in (8, 4)
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
        ("engine: fsdp\npin: {fsdp.sharding: hybrid}", {}, "hybrid is the same as full sharding"),
        ("pin: {fsdp.version: 2}", {"method": "qlora"}, "pin quantization.storage"),
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
    found = planned(tmp_path, method="qlora", hardware="rtx-3090-x4").plan
    assert found.parallel.engine == "fsdp"
    assert found.quantization.storage == "bf16"
    alone = planned(tmp_path, "", method="qlora", hardware="rtx-3090-x4").plan
    assert alone.quantization.storage is None


def test_a_packed_base_is_whole_on_each_device_until_it_is_split():
    """From transformers 5.0 on; 4.57.6 keeps it on the host, so that less has to fit."""
    cards = {"model": "llama-2-70b", "method": "qlora", "hardware": "rtx-3090-x2"}
    data = {"train": "train.jsonl", "samples": 1000, "sequence": 1024}
    given = {**cards, "data": data, "engine": "fsdp"}
    by = {
        release: compiled(**given, software={"transformers": release})
        for release in ("4.57.6", "5.23.0")
    }
    assert by["4.57.6"].planned.plan.fsdp.offload_params
    (lack,) = [each for each in by["5.23.0"].diagnostics if each.id == "E0701"]
    assert "whole base" in {term.name for term in lack.sum}


def test_hybrid_stays_inside_a_node(tmp_path):
    """Twice the nodes take as much of a device, while full sharding takes less."""
    cluster = "a100-80g-x8"
    more = "engine: fsdp\npin: {{fsdp.version: 1, fsdp.sharding: {}, batch.micro: 1}}"
    full = planned(tmp_path, more.format("full"), hardware=cluster).memory
    assert full.layout.fsdp.sharding == "full"
    from tunec.compiler.analyses.memory.account import account
    from tunec.schemas.frozen import replace

    layout = full.layout
    wider = replace(layout, nodes=2, parallel=replace(layout.parallel, world=16, data=16))
    hybrid = replace(wider, fsdp=replace(layout.fsdp, sharding="hybrid"))
    assert account(full.workload, hybrid).terms == account(full.workload, layout).terms
    assert account(full.workload, wider).peak_bytes < account(full.workload, hybrid).peak_bytes


@pytest.mark.parametrize(
    ("model", "accelerate", "version"),
    [
        ("t5-3b", "1.15.0", 1),
        ("t5-3b", "1.13.0", 2),
        ("bart-large", "1.15.0", 1),
        ("llama-3.2-3b", "1.15.0", 2),
        ("llama-3.2-3b", "1.14.0", 1),
        ("llama-3.1-8b", "1.14.0", 2),
    ],
)
def test_an_embedding_that_version_2_splits_goes_to_version_1(tmp_path, model, accelerate, version):
    more = f'engine: fsdp\nsoftware: {{accelerate: "{accelerate}", transformers: "5.23.0"}}'
    found = planned(tmp_path, more, model=model, sequence=512)
    assert found.plan.fsdp.version == version


@pytest.mark.parametrize(
    ("model", "more", "reason"),
    [
        ("t5-3b", "pin: {fsdp.version: 2}", "encoder and decoder share an embedding"),
        ("bart-large", "pin: {fsdp.version: 2}", "encoder and decoder share an embedding"),
        ("bert-large-uncased", "engine: fsdp", "its output projection is not"),
        ("roberta-large", "pin: {fsdp.version: 1}", "its output projection is not"),
    ],
)
def test_an_embedding_without_a_unit_is_refused(tmp_path, model, more, reason):
    found = planned(tmp_path, more, model=model, sequence=512)
    assert not found.ok
    assert any(reason in note for each in found.diagnostics for note in each.notes)


_HEAD = {"lora": {"rank": 8, "also_train": ["lm_head"]}}


@pytest.mark.parametrize(
    ("model", "method", "trl", "version"),
    [
        ("qwen2.5-vl-7b", "full", "1.16.0", 1),
        ("qwen2.5-vl-7b", "full", "1.6.0", 2),
        ("qwen2.5-vl-7b", "lora", "1.16.0", 2),
        ("qwen2.5-7b", "full", "1.16.0", 2),
        ("qwen2.5-7b", _HEAD, "1.16.0", 1),
    ],
    ids=str,
)
def test_a_head_that_trls_loss_reads_past_version_2_goes_to_version_1(model, method, trl, version):
    """Each rank would train it on its own batch alone."""
    data = {"train": "train.jsonl", "samples": 1000, "sequence": 512}
    wanted = {"model": model, "method": method, "data": data, "hardware": "a100-80g-x8"}
    wanted |= {"engine": "fsdp", "software": {"trl": trl, "accelerate": "1.15.0"}}
    assert spec_planned(**wanted).plan.fsdp.version == version
    refused = spec_planned(**wanted, pin={"fsdp.version": 2})
    assert refused.ok is (version == 2)


def test_units_that_are_named_leave_the_embedding_of_bert_to_its_own(tmp_path):
    """Its head's bias stays shared: version 2 fails at that, and version 1 has no unit for it."""
    named = "pin: {{fsdp.wrap_classes: [BertLayer], fsdp.version: {}}}"
    found = [
        planned(tmp_path, named.format(version), model="bert-large-uncased", sequence=512)
        for version in (1, 2)
    ]
    assert found[0].ok
    assert any("bias" in note for each in found[1].diagnostics for note in each.notes)


@pytest.mark.parametrize(
    ("more", "classes"),
    [
        ("engine: fsdp", ("Gemma3DecoderLayer", "SiglipEncoderLayer")),
        (
            "pin: {fsdp.version: 2, fsdp.wrap_classes: [Gemma3DecoderLayer]}",
            ("Gemma3DecoderLayer",),
        ),
        ("pin: {fsdp.version: 2, fsdp.wrap: size, fsdp.min_parameters: 100000000}", ()),
    ],
)
def test_layers_are_named_where_the_model_lists_classes_that_it_does_not_have(
    tmp_path, more, classes
):
    found = planned(tmp_path, more, model="gemma-3-4b", sequence=2048)
    assert found.ok
    assert found.plan.fsdp.wrap_classes == classes


@pytest.mark.parametrize(
    ("model", "target", "sends"),
    [
        ("gemma-4-31b", "trl", False),
        ("glm-4.5-air", "trl", False),
        ("glm-4.5-air", "axolotl", True),
        ("llama-3.1-8b", "trl", True),
    ],
)
def test_weights_are_sent_where_the_state_has_no_buffers(model, target, sends):
    """accelerate takes each entry of the state for a shard of a mesh, which a buffer is not."""
    given = {"model": model, "method": "lora", "hardware": "h200-x8", "engine": "fsdp"}
    found = compiled(target, **{**FULL, **given}, pin={"fsdp.version": 2}).planned.plan
    assert found.fsdp.efficient_loading == sends


@pytest.mark.parametrize(("release", "wrapped"), [("0.20.0", True), ("0.21.2", False)])
def test_peft_finds_adapters_only_in_layers_that_are_not_wrapped(release, wrapped):
    """peft 0.21 would save an empty file of those below FSDP 1, or below FSDP's recomputation."""
    asked_for = {"method": "lora", "engine": "fsdp", "hardware": "a100-80g-x8"}
    pin = {"activation_checkpointing.mode": "layer"}
    software = {"peft": release}
    found = compiled("trl", **asked_for, pin=pin, software=software).planned.plan
    assert (found.fsdp.version, found.fsdp.checkpointing) == (2, wrapped)
    first = compiled("trl", **asked_for, pin={"fsdp.version": 1}, software=software)
    assert (first.planned.plan is not None) == wrapped
