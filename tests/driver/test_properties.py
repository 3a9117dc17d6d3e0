"""What holds of every plan, whatever the spec."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs
from planning import codes, decided, errors, example, example_files, pins_of, planned, spec_of

import tunec
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.driver import Planned, plan
from tunec.compiler.frontend.load import load_mapping
from tunec.compiler.ir.invariants import breaches
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.passes.fit.fit import GROUPS as FIT_GROUPS
from tunec.compiler.passes.fit.problem import SHAPE_SLOTS
from tunec.compiler.passes.fit.search import OFFLOADED, TIE
from tunec.compiler.passes.pipeline import PIPELINE
from tunec.schemas.terms import FloatDtype

EQUAL = 1 + TIE
"""A layout has ten pieces of machinery at most, and each has to be worth a thousandth."""

MODELS = st.sampled_from(
    ["llama-3.2-1b", "qwen2.5-0.5b", "smollm2-360m", "gemma-2-2b", "glm-4v-9b", "minicpm-v-2_6"]
)
HARDWARE = st.sampled_from(
    ["a100-80g-x1", "a100-40g-x4", "t4-x2", "v100-32g-x8", "rtx-3090-x4", "h100-x8-n2", "p100-x1"]
)
METHODS = st.sampled_from(["full", "lora", "qlora", "int8_lora"])


@st.composite
def specs(draw) -> dict[str, Any]:
    """Specs that are well formed; some fit, some do not."""
    changes: dict[str, Any] = {
        "model": draw(MODELS),
        "hardware": draw(HARDWARE),
        "method": draw(METHODS),
        "data": {
            "train": "train.jsonl",
            "samples": draw(st.integers(1, 100_000)),
            "sequence": draw(st.sampled_from([128, 512, 1024, 2048])),
        },
    }
    if draw(st.booleans()):
        changes["batch"] = {"global": draw(st.integers(1, 96))}
    if draw(st.booleans()):
        changes["budget"] = {"gpu_memory": draw(st.floats(0.3, 1.0))}
    return changes


@given(specs())
def test_a_plan_is_right_or_refused(changes):
    found = planned(**changes, repairing=False)
    assert (found.plan is None) == bool(errors(found))
    if found.plan is not None:
        assert not list(breaches(found.plan))
        assert found.memory.required_bytes <= found.plan.devices.budget
        host = found.plan.devices.host_budget
        assert host is None or found.memory.host.peak_bytes <= host
        assert found.time.step_seconds > 0


@given(specs())
def test_equal_specs_have_equal_plans(changes):
    assert contents(planned(**changes)) == contents(planned(**changes))


def contents(found: Planned) -> dict[str, Any]:
    """All that was found; a workload, which equals itself alone, by its fields."""
    whole = structs.asdict(found)
    if found.memory is None:
        return whole
    memory = structs.asdict(found.memory)
    return {**whole, "memory": {**memory, "workload": structs.asdict(found.memory.workload)}}


@given(specs())
def test_a_plan_with_every_slot_pinned_is_itself(changes):
    first = planned(**changes, repairing=False).plan
    assume(first is not None)
    again = planned(**changes, pin=pins_of(first), repairing=False)
    assert again.plan == first, errors(again)


def numbers(memory):
    """What an account says; the workload that it speaks of is compared by the plan."""
    return memory.phases, memory.peak_phase, memory.required_bytes, memory.host


@pytest.mark.parametrize("name", example_files())
def test_an_example_with_every_slot_pinned_is_itself(name):
    found = example(name)
    if found.plan is None:
        return
    from planning import EXAMPLES, asked

    from tunec.compiler.frontend.load import load_spec

    loaded = load_spec(EXAMPLES / name)
    spec = loaded.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec["pin"] = pins_of(found.plan)
    pinned = load_mapping(spec, base=EXAMPLES / name)
    again = plan(pinned, asked(pinned))
    assert again.plan == found.plan, errors(again)
    assert numbers(again.memory) == numbers(found.memory)
    assert again.time == found.time


PINS: dict[str, list[Any]] = {
    "parallel.engine": ["none", "ddp", "deepspeed"],
    "parallel.data": [1, 2, 3],
    "parallel.world": [1, 2, 16],
    "parallel.tensor": [1, 2],
    "zero.stage": [0, 1, 2, 3],
    "zero.offload_optimizer": ["none", "cpu", "nvme"],
    "zero.offload_param": ["none", "cpu", "nvme"],
    "zero.reduce_bucket": [1000, 500_000_000],
    "activation_checkpointing.mode": ["none", "layer"],
    "activation_checkpointing.reentrant": [True, False],
    "activation_checkpointing.segment": [1, 4],
    "activation_checkpointing.gap": [0, 2],
    "activation_checkpointing.offload": [True, False],
    "batch.micro": [1, 2, 3, 1000],
    "batch.accumulation": [1, 2, 5],
    "batch.global": [1, 7, 64],
    "batch.evaluation": [1, 8],
    "states.gradients": ["fp32", "bf16"],
    "states.master_weights": [True, False],
    "precision.compute": ["bf16", "fp16", "fp32"],
    "precision.loss_scaling": ["none", "dynamic"],
    "attention.implementation": ["eager", "sdpa", "flash_attention_2"],
    "quantization.format": ["none", "nf4", "int8"],
    "adapter.rank": [1, 4, 256],
    "adapter.targets": ["q_proj", ["q_proj", "v_proj"], "nothing_is_called_this"],
    "optimizer.name": ["adamw", "adamw_8bit", "lion", "adamw_bf16", "adafactor"],
    "schedule.warmup_steps": [0, 10, 10_000_000],
    "schedule.steps": [1, 100],
    "devices.budget": [2**30, 2**36],
    "data.images": [0, 2],
    "runtime.seed": [0, 1],
    "launch.launcher": ["python", "torchrun", "accelerate"],
}


@st.composite
def pins(draw) -> dict[str, Any]:
    """One to three pins."""
    slots = draw(st.lists(st.sampled_from(sorted(PINS)), min_size=1, max_size=3, unique=True))
    return {slot: draw(st.sampled_from(PINS[slot])) for slot in slots}


@given(pins(), st.sampled_from(["a100-80g-x2", "t4-x2", "a100-80g-x1"]), METHODS)
def test_a_pin_wins_or_is_refused_by_name(pinned, hardware, method):
    found = planned(pin=pinned, hardware=hardware, method=method)
    if found.plan is not None:
        for slot, value in pinned.items():
            expected = tuple(value) if isinstance(value, list) else value
            assert found.plan[slot] == expected
        return
    said = " ".join(
        " ".join((each.message, *each.notes, *(label.path or "" for label in each.labels)))
        for each in found.diagnostics
        if each.severity == "error"
    )
    assert said
    if planned(hardware=hardware, method=method).plan is not None:
        assert any(slot in said for slot in pinned), said


@given(specs(), st.floats(0.3, 1.0), st.floats(0.3, 1.0))
def test_more_memory_never_makes_a_plan_slower(changes, one, other):
    small, large = sorted((one, other))
    tight = planned(**{**changes, "budget": {"gpu_memory": small}}, repairing=False)
    roomy = planned(**{**changes, "budget": {"gpu_memory": large}}, repairing=False)
    assume(tight.plan is not None)
    assert roomy.plan is not None, errors(roomy)
    zero = tight.plan.zero
    moved = OFFLOADED if {zero.offload_optimizer, zero.offload_param} != {"none"} else 0
    allowed = EQUAL * (1 + moved) / tight.time.samples_per_second
    assert 1 / roomy.time.samples_per_second <= allowed


@given(specs(), st.sampled_from(["ddp", "deepspeed"]), st.sampled_from([0, 1, 2, 3]))
def test_more_devices_never_need_more_memory_of_each(changes, engine, stage):
    """At the same micro batch; two devices and more, because one alone has no communication."""
    pin = {"batch.micro": 1, "batch.accumulation": 1, "parallel.engine": engine}
    pin |= {"zero.stage": stage if engine == "deepspeed" else 0}
    pin |= {"zero.offload_optimizer": "none", "zero.offload_param": "none"}
    pin |= {"activation_checkpointing.mode": "layer"}
    changes = {**changes, "batch": {}, "budget": {}, "pin": pin}
    few_devices, many = (
        planned(**{**changes, "hardware": hardware, "batch": {"global": count}}, repairing=False)
        for hardware, count in (("a100-80g-x2", 2), ("a100-80g-x8", 8))
    )
    assume(few_devices.plan is not None)
    assert many.plan is not None, errors(many)
    assert many.plan.parallel.world == 8
    assert many.memory.peak_bytes <= few_devices.memory.peak_bytes


# ── the pipeline ─────────────────────────────────────────────────────────────────────────────────


def test_every_slot_is_decided_exactly_once():
    decided_groups = [group for each in PIPELINE for group in each.decides]
    assert len(decided_groups) == len(set(decided_groups))
    assert {SLOTS[slot].group for slot in SLOTS} == set(decided_groups)


def test_every_pass_decides_what_it_says_and_reads_only_what_it_says():
    from tunec.compiler.ir.plan import Draft, build_group
    from tunec.compiler.resolve import resolve

    loaded = load_mapping(spec_of())
    facts = resolve(loaded.spec, loaded.base)
    draft = Draft({})
    for each in PIPELINE:
        visible = Draft({group: draft.groups[group] for group in each.reads})
        outcome = each.run(facts, visible)
        assert {SLOTS[slot].group for slot in outcome.decisions} == set(each.decides), each.name
        wanted = {slot for slot in SLOTS if SLOTS[slot].group in each.decides}
        assert set(outcome.decisions) == wanted, each.name
        values = {slot: found.value for slot, found in outcome.decisions.items()}
        draft = draft.with_groups({g: build_group(g, values) for g in each.decides})
    assert not draft.missing()


def test_every_decision_has_a_reason():
    found = planned()
    for slot in SLOTS:
        winner = found.ledger.winner(slot)
        assert winner is not None, slot
        assert winner.reason, slot
        assert winner.author in {each.name for each in PIPELINE}


def test_the_hook_is_called_after_each_pass_in_order():
    seen = []
    plan(
        load_mapping(spec_of()),
        hook=lambda each, ledger: seen.append((each.name, len(ledger.entries))),
    )
    assert [name for name, _ in seen] == [each.name for each in PIPELINE]
    counts = [count for _, count in seen]
    assert counts == sorted(counts)
    assert counts[-1] == len(SLOTS)


def test_a_pin_is_kept_beside_what_it_beat():
    found = planned(pin={"batch.micro": {"value": 1, "reason": "the images differ in size"}})
    winner = found.ledger.winner("batch.micro")
    assert (winner.value, winner.reason) == (1, "the images differ in size")
    others = [each for each in found.ledger.of("batch.micro") if each is not winner]
    assert [each.author for each in others] == ["fit"]
    assert others[0].value > 1


@pytest.mark.parametrize(
    ("pin", "code"),
    [
        ({"devices.nodes": 2}, "E0405"),
        ({"devices.per_node": 2**63 - 1}, "E0405"),
        ({"devices.capability": "x"}, None),
        ({"adapter.rank": 0}, "E0402"),
        ({"zero.stage": 3, "zero.prefetch_bucket": 2**63 - 1}, ""),
        ({"schedule.epochs": None}, "E0402"),
        ({"batch.global": 2**63 - 1}, ""),
        ({"objective.kind": "grpo", "generation.samples": 0}, "E0402"),
    ],
    ids=str,
)
def test_no_pin_at_its_extreme_breaks_a_plan(pin, code):
    """`code`: of the error; empty: there is none; None: the spec itself is refused."""
    loaded = load_mapping(spec_of(pin=pin))
    assert (loaded.spec is None) == (code is None)
    found = plan(loaded)
    assert (found.plan is not None) == (code == "")
    assert not code or code in codes(found)


def test_what_a_budget_lacks_is_told_where_the_budget_stands():
    lacking = {"hardware": {}, "budget.gpu_memory": {"gpu_memory": "1GiB"}}
    for path, budget in lacking.items():
        found = planned(model="llama-3.1-70b", method="full", hardware="t4-x1", budget=budget)
        assert [each.labels[0].path for each in found.diagnostics if each.id == "E0701"] == [path]


@pytest.mark.parametrize(("target", "code"), [("simpletuner", "E0901"), ("deepspeed@99", "E0902")])
def test_every_error_has_a_place(target, code):
    found = tunec.compile(spec_of(), targets=[target]).diagnostics
    assert code in {each.id for each in found}
    assert all(each.span for each in found if each.severity == "error")


@pytest.mark.parametrize("slot", sorted(SHAPE_SLOTS))
def test_a_layout_beats_others_by_name(slot):
    found = planned(hardware="a100-80g-x2")
    winner = found.ledger.winner(slot)
    assert all(other.value != winner.value for other in winner.beat)
    if slot in ("zero.stage", "activation_checkpointing.mode", "parallel.engine"):
        assert winner.beat


def test_the_accounts_are_those_of_the_plan():
    found = planned()
    layout = Layout.of(found.plan)
    assert layout.batch == found.plan.batch
    assert set(FIT_GROUPS) == {
        "parallel",
        "states",
        "zero",
        "fsdp",
        "activation_checkpointing",
        "batch",
    }


@pytest.mark.parametrize("compute", FloatDtype.__args__)
def test_loss_scaling_follows_the_compute_dtype(compute):
    made = decided(precision=compute, hardware="a100-80g-x1")
    assert made.precision.compute == compute
    assert (made.precision.loss_scaling == "dynamic") == (compute == "fp16")


@pytest.mark.parametrize("engine", ["none", "deepspeed"])
def test_an_engine_that_is_asked_for_is_the_plans(engine):
    made = decided(engine=engine, hardware="a100-80g-x1")
    assert made.parallel.engine == engine
    assert decided(engine="ddp").parallel.engine == "ddp"


def test_an_engine_that_cannot_run_is_told_where_it_stands():
    found = planned(engine="none", hardware="a100-80g-x2", batch={"global": 8})
    if found.plan is not None:
        assert found.plan.parallel.engine == "none"
        return
    (told,) = [each for each in found.diagnostics if each.id == "E0702"]
    assert [label.path for label in told.labels] == ["engine"]
    assert codes(found) == {"E0702"}


def test_a_breach_between_pins_is_told_once_and_nothing_that_follows_from_it():
    found = planned(pin={"batch.micro": 3, "batch.accumulation": 1, "batch.global": 16})
    assert codes(found) == {"E0702"}
    found = planned(pin={"zero.stage": 1, "zero.offload_param": "cpu"})
    assert codes(found) == {"E0702", "E0402"}
