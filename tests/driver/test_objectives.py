"""Towards what a model is trained, and how its loss is computed: what is decided, and why."""

from typing import Any

import pytest
from planning import codes, decided, errors, pins_of, planned
from tests.tables import rows

import tunec
from tunec.compiler.analyses import liger
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.passes.fit.answers import preference_of, written_of
from tunec.schemas.objective_facts import OBJECTIVES
from tunec.targets.registry import REGISTRY

GRPO = {"grpo": {"rewards": ["accuracy_reward"], "samples": 6, "completion": 256}}
A100, P100 = "a100-80g-x2", "p100-x1"


# ── the loss, by software ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(*rows(__file__, "test_the_loss_follows_from_the_software"))
def test_the_loss_follows_from_the_software(software, path):
    assert decided(software=software).loss.path == path


@pytest.mark.parametrize(
    ("software", "pin", "said"),
    [
        ({}, "fused", "liger-kernel is not named in the software"),
        ({}, "chunked", "no trl is named in the software"),
        ({"trl": "1.3.0"}, "chunked", "trl 1.3.0 computes all logits"),
        ({"liger-kernel": "0.8.0", "trl": "1.16.0"}, "fused", "replaces Liger's"),
    ],
)
def test_a_loss_that_the_software_has_not_is_refused(software, pin, said):
    found = planned(software=software, pin={"loss.path": pin})
    assert codes(found) == {"E0606"}
    assert said in errors(found)[0]


def test_a_pin_takes_what_is_there_and_not_usual():
    assert decided(software={"trl": "1.5.1"}, pin={"loss.path": "chunked"}).loss.path == "chunked"
    assert decided(software={"trl": "1.9.2"}, pin={"loss.path": "full"}).loss.path == "full"


def test_an_adapter_on_the_head_keeps_trl_from_pieces_until_1_15():
    method = {"lora": {"targets": "all-linear", "also_train": ["lm_head"]}}
    for version, path in [("1.9.2", "full"), ("1.16.0", "chunked")]:
        found = decided(model="tinyllama-1.1b", method=method, software={"trl": version})
        assert found.loss.path == path


def test_liger_runs_for_families_and_devices_that_it_knows():
    version = liger.Version("0.5.10")
    assert liger.refusal("qwen3", (8, 0), version) is None
    assert liger.refusal("qwen3", None, version) is None
    assert liger.refusal("qwen3", (8, 0), liger.Version("0.4.2")) is not None
    assert liger.refusal("granite", (8, 0), version) is not None
    assert "7.0, not 6.0" in str(liger.refusal("llama", (6, 0), version))
    on_p100 = {"software": {"liger-kernel": "0.8.0"}, "precision": "fp32", "hardware": P100}
    assert decided(**on_p100).loss.path == "full"


def test_a_leaner_loss_takes_less_memory():
    """And the plan's account is of the loss that is decided."""
    batch = {"global": 16}
    pins = {"batch.micro": 2, "activation_checkpointing.mode": "layer"}
    found = {
        path: planned(software=software, batch=batch, pin=pins)
        for path, software in [("full", {}), ("chunked", {"trl": "1.16.0"})]
    }
    for path, each in found.items():
        assert each.memory.workload.loss == path
    assert found["chunked"].memory.peak_bytes < 0.7 * found["full"].memory.peak_bytes


# ── the objective ────────────────────────────────────────────────────────────────────────────────


def test_given_texts_are_the_usual_objective():
    plan = decided()
    assert (plan.objective.kind, plan.objective.reference) == ("sft", "none")
    assert plan.generation.engine == "none"
    assert decided(objective="sft") == plan


@pytest.mark.parametrize(
    ("method", "asked", "reference", "rate"),
    [
        ("lora", "dpo", "base", 5e-6),
        ("full", "dpo", "resident", 5e-7),
        ("full", {"dpo": {"reference": "precomputed"}}, "precomputed", 5e-7),
        ("qlora", {"dpo": {"beta": 0.2, "loss": "ipo"}}, "base", 5e-6),
        ("lora", GRPO, "none", 1e-5),
        ("lora", {"grpo": {**GRPO["grpo"], "beta": 0.04}}, "base", 1e-5),
        ("full", {"grpo": {**GRPO["grpo"], "beta": 0.04}}, "resident", 1e-6),
        ("full", "ppo", "none", 1e-6),
        ("lora", {"ppo": {"beta": 0.05}}, "base", 3e-5),
    ],
)
def test_the_reference_and_the_rate_follow_from_objective_and_method(
    method, asked, reference, rate
):
    plan = decided(method=method, objective=asked)
    assert plan.objective.reference == reference
    assert plan.optimizer.learning_rate == rate
    assert plan.loss.path == "chunked"


@pytest.mark.parametrize(
    ("method", "rate", "head"), [("lora", 1e-4, ("score",)), ("full", 1e-5, ())]
)
def test_a_reward_model_brings_its_head(method, rate, head):
    plan = decided(method=method, objective="reward", software={"trl": "1.16.0"})
    assert (plan.model.kind, plan.loss.path) == ("sequence-classifier", "full")
    assert (plan.objective.loss, plan.objective.reference) == ("sigmoid", "none")
    assert (plan.optimizer.learning_rate, plan.adapter.also_train) == (rate, head)
    one = {"sequence_classification": {"labels": 1}}
    assert decided(method=method, objective="reward", task=one, software={"trl": "1.16.0"}) == plan


def test_peft_trains_the_head_beside_other_modules():
    for named, whole in ((["embed_tokens"], ("embed_tokens", "score")), (["score"], ("score",))):
        method = {"lora": {"also_train": named}}
        plan = decided(method=method, objective="reward", software={"trl": "1.16.0"})
        assert plan.adapter.also_train == whole


def test_trl_before_1_15_computes_all_logits_of_answers():
    assert decided(objective="dpo", software={"trl": "1.9.2"}).loss.path == "full"
    found = planned(objective="dpo", software={"trl": "1.16.0"}, pin={"loss.path": "full"})
    assert codes(found) == {"E0606"}


def test_a_step_holds_whole_groups_and_keeps_all_devices_busy():
    plan = decided(objective=GRPO, hardware="a100-80g-x8")
    assert plan.batch.global_ % 6 == 0
    assert plan.batch.global_ % 8 == 0
    assert plan.parallel.data == 8
    assert plan.generation.prompt + plan.generation.completion == plan.data.sequence


@pytest.mark.parametrize(*rows(__file__, "test_what_does_not_fit_an_objective_is_refused"))
def test_what_does_not_fit_an_objective_is_refused(changes: dict[str, Any], code, said):
    found = planned(**changes)
    assert code in codes(found)
    assert any(said in message for message in errors(found))


@pytest.mark.parametrize(
    "pins",
    [
        {"objective.reference": "base"},
        {"generation.engine": "transformers"},
        {"generation.device_share": 0.5},
        {"objective.kind": "dpo", "objective.reference": "none"},
    ],
)
def test_pins_that_contradict_each_other_break_an_invariant(pins):
    found = planned(method="full", pin=pins)
    assert codes(found) & {"E0402", "E0804"}


@pytest.mark.parametrize("asked", ["sft", "dpo", GRPO, {"ppo": {"beta": 0.1}}, "reward"])
def test_every_slot_pinned_is_the_same_plan(asked):
    plan = decided(objective=asked)
    assert decided(objective=asked, pin=pins_of(plan)) == plan


@pytest.mark.parametrize(
    ("asked", "critic", "kl"),
    [
        ({}, "meta-llama/Llama-3.2-1B", "none"),
        ({"kl": "loss"}, "meta-llama/Llama-3.2-1B", "none"),
        ({"beta": 0.1}, "meta-llama/Llama-3.2-1B", "reward"),
        ({"beta": 0.1, "kl": "loss", "critic": "qwen2.5-0.5b"}, "Qwen/Qwen2.5-0.5B", "loss"),
    ],
)
def test_ppo_has_a_critic_and_counts_the_distance_once(asked, critic, kl):
    found = planned(method="full", objective={"ppo": asked})
    assert (found.plan.ppo.critic, found.plan.ppo.kl) == (critic, kl)
    assert found.plan.generation.samples == 1
    second = found.memory.workload.critic.workload.architecture
    assert (second.kind, second.vocab) == ("token-classifier", 1)
    assert found.plan.objective.loss == "clipped"


def test_a_critic_is_trained_in_full_beside_adapters():
    made = planned(objective="ppo", software={"verl": "0.9.1"}, hardware="h100-80g-x2")
    critic = made.memory.workload.critic
    assert made.plan.adapter.kind == "lora"
    assert critic.workload.trained == critic.workload.architecture.modules
    assert critic.states.trainable == "fp32"
    assert made.memory.terms["critic optimizer states"] > made.memory.terms["optimizer states"]


# ── the accounts ─────────────────────────────────────────────────────────────────────────────────


def test_the_accounts_hear_of_the_objective():
    pairs, written = decided(objective="dpo"), decided(objective=GRPO)
    assert preference_of(decided().objective, decided().generation) is None
    assert preference_of(pairs.objective, pairs.generation).sequences == 2
    assert preference_of(written.objective, written.generation).sequences == 1
    assert written_of(pairs.generation) is None
    assert written_of(written.generation).tokens == 1024
    server = {"grpo": {**GRPO["grpo"], "generator": "vllm_server"}}
    assert written_of(decided(objective=server).generation) is None


def test_a_second_model_is_in_memory_and_time():
    asked = {"method": "full", "engine": "deepspeed"}
    both = planned(objective="dpo", **asked)
    before = planned(objective={"dpo": {"reference": "precomputed"}}, **asked)
    size = 2 * both.plan.model.parameters
    assert both.memory.terms["reference model"] == size
    assert "reference model" not in before.memory.terms
    assert both.time.terms["reference forward"] > 0
    assert "reference forward" not in before.time.terms
    loading = [
        each.memory.host.phases["loading"]["weights while loading"] for each in (both, before)
    ]
    assert loading[0] == 2 * loading[1]


def test_a_second_model_beside_adapters_is_stored_as_the_trained_one():
    """openrlhf 0.10.4 to 0.11.2 cli/train_dpo.py: load_in_4bit of both."""
    spec = {
        "tunec": 1,
        "model": "llama-3.1-8b",
        "method": "qlora",
        "objective": "dpo",
        "data": {"train": "pairs.jsonl", "samples": 1000},
        "hardware": "a100-80g-x1",
    }
    made = tunec.compile(spec, targets=["openrlhf"]).planned
    assert made.plan.objective.reference == "resident"
    terms = made.memory.terms
    assert terms["reference model"] == pytest.approx(terms["frozen weights"], rel=0.01)


def test_answers_take_a_cache_that_grows_with_the_step():
    """The answers of a whole step are written at once, however small the micro batches are."""
    found = [planned(objective=GRPO, batch={"global": size}) for size in (48, 96)]
    caches = [each.memory.phases["generation"]["key-value cache"] for each in found]
    assert caches[1] == 2 * caches[0]
    plan = found[0].plan
    heads = 2 * 16 * 8 * 64  # keys and values of 16 layers, 8 heads of 64 (Llama 3.2 1B)
    assert caches[0] == 2 * heads * 1024 * 48 // plan.parallel.data
    assert found[0].time.terms["generation"] > found[0].time.terms["forward"]


def test_vllm_takes_its_share_of_each_device():
    share = {"grpo": {**GRPO["grpo"], "generator": "vllm_colocate", "device_share": 0.4}}
    found = planned(objective=share)
    held = found.memory.terms["generation engine"]
    assert held == round(0.4 * found.plan.devices.memory)
    assert "generation" not in found.memory.phases
    assert {"scoring", "handing over"} <= set(found.memory.phases)
    own = planned(objective=GRPO)
    assert found.time.terms["generation"] < own.time.terms["generation"]
    server = planned(objective={"grpo": {**GRPO["grpo"], "generator": "vllm_server"}})
    assert "generation" not in server.memory.phases


@pytest.mark.parametrize("objective", ["dpo", "reward"])
def test_a_pair_takes_twice_the_time_of_a_text(objective):
    pins = {"batch.micro": 1, "parallel.engine": "ddp", "activation_checkpointing.mode": "none"}
    asked = {"batch": {"global": 16}, "pin": pins, "software": {"trl": "1.16.0"}}
    # long enough that one text keeps all units of the device busy
    asked |= {"data": {"train": "train.jsonl", "samples": 1000, "sequence": 4096}}
    one_number = {"sequence_classification": {"labels": 1}}
    texts = planned(task=one_number if objective == "reward" else None, **asked)
    pairs = planned(objective=objective, **asked)
    # the products' weights are read once for both
    one, two = (each.time.terms["forward"] for each in (texts, pairs))
    assert 1.8 * one < two < 2 * one
    assert pairs.time.tokens == 2 * texts.time.tokens
    assert pairs.time.samples == texts.time.samples


LONG_PAIRS = {
    "train": "pairs.jsonl",
    "samples": 50,
    "sequence": 512,
    "lengths": {100: 40, 600: 10},
}


@pytest.mark.parametrize(
    ("target", "steps", "goes"),
    [("axolotl", 7, "truncated"), ("axolotl@0.16", 5, "left out"), ("trl", 7, "truncated")],
)
def test_pairs_are_cut_where_the_trainer_can_and_left_out_elsewhere(target, steps, goes):
    """Of 50 pairs 10 are too long: axolotl 0.16.1 and 0.17.0 utils/data/rl.py `_load_split`."""
    spec = {"tunec": 1, "model": "llama-3.2-1b", "method": "lora", "hardware": A100}
    spec |= {"data": LONG_PAIRS, "batch": {"global": 8}, "objective": "dpo"}
    found = tunec.compile(spec, targets=[target])
    assert found.planned.plan.schedule.steps == steps
    (told,) = (each for each in found.diagnostics if each.id == "samples-cut")
    assert f"will be {goes}" in told.message
    written = "excess_length_strategy: truncate" in "".join(found.texts().values())
    assert written == (target == "axolotl")


@pytest.mark.parametrize(
    ("target", "steps", "goes"), [("trl", 5, "left out"), ("axolotl", 7, "truncated")]
)
def test_steps_are_of_the_pairs_that_the_trainer_keeps(target, steps, goes):
    """Of 50 pairs 10 are too long: trl 1.16.0 trainer/reward_trainer.py `_prepare_dataset`."""
    spec = {"tunec": 1, "model": "llama-3.2-1b", "method": "lora", "hardware": A100}
    spec |= {"data": LONG_PAIRS, "batch": {"global": 8}, "objective": "reward"}
    found = tunec.compile(spec, targets=[target])
    assert found.planned.plan.schedule.steps == steps
    (told,) = (each for each in found.diagnostics if each.id == "samples-cut")
    assert f"10 of 50 samples are longer than 512 tokens and will be {goes}" in told.message
    assert (
        tunec.compile(spec | {"objective": "dpo"}, targets=[target]).planned.plan.schedule.steps
        == 7
    )


# ── targets ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("huggingface", "transformers' Trainer trains towards given texts"),
        ("glm4", "transformers' Trainer trains towards given texts"),
    ],
)
def test_other_trainers_refuse_answers_with_the_reason(target, reason):
    spec = {
        "tunec": 1,
        "model": "glm-4-9b-0414" if target == "glm4" else "llama-3.2-1b",
        "method": "lora",
        "objective": "dpo",
        "data": {"train": "train.jsonl", "samples": 1000, "sequence": 1024},
        "hardware": A100,
    }
    compiled = tunec.compile(spec, targets=[target])
    notes = [note for each in compiled.diagnostics if each.id == "E0901" for note in each.notes]
    assert any(reason in note for note in notes)
    assert not compiled.artifacts


@pytest.mark.parametrize(
    "target",
    ["huggingface", "trl", "axolotl", "llamafactory", "ms-swift", "openrlhf", "unsloth"],
)
def test_a_critic_is_one_fault_that_names_who_trains_it(target):
    data = {"train": "train.parquet", "samples": 1000, "sequence": 1024}
    spec = {"tunec": 1, "model": "qwen2.5-0.5b", "method": "lora", "objective": "ppo", "data": data}
    compiled = tunec.compile(spec | {"hardware": A100[:-1] + "1"}, targets=[target])
    (fault,) = (each for each in compiled.diagnostics if each.severity == "error")
    assert "cannot express objective.kind ppo" in fault.message
    assert "compile to verl" in fault.help


@pytest.mark.parametrize("target", ["huggingface", "llamafactory", "nemo-automodel"])
def test_a_reward_model_is_one_fault_that_names_who_trains_it(target):
    """What the objective brings, such as its loss and its head, is no fault of its own."""
    data = {"train": "train.jsonl", "samples": 1000, "sequence": 1024}
    spec = {"tunec": 1, "model": "qwen3-8b", "method": "lora", "objective": "reward", "data": data}
    compiled = tunec.compile(spec | {"hardware": "a100-80g-x1"}, targets=[target])
    (fault,) = (each for each in compiled.diagnostics if each.id == "E0901")
    assert "cannot express objective.kind reward" in fault.message
    assert f"compile to {joined(OBJECTIVES['reward'].written_by, 'or')}" in fault.help


def test_who_writes_an_objective_is_known():
    for kind, facts in OBJECTIVES.items():
        every = [REGISTRY[name] for name in REGISTRY.names()]
        said = {each.name for each in every if kind in each.cannot["objective.kind"].harmless}
        rows = {
            target.name
            for target in every
            for file in target.files
            for row in file.entries
            if {"objective.kind": kind} in [dict(values) for _, values in row.absent]
        }
        assert not facts.written_by or set(facts.written_by) == rows | said


@pytest.mark.parametrize("name", [name for name in REGISTRY.names() if name != "trl"])
def test_no_other_target_says_an_objective_and_all_say_why(name):
    target = REGISTRY[name]
    cannot = target.cannot["objective.kind"]
    starts_only = name in ("launch", "accelerate", "slurm", "kubeflow", "skypilot", "deepspeed")
    assert cannot.loses is not starts_only
    both = ("sft", "dpo")
    known = {
        **dict.fromkeys(("llamafactory", "openrlhf"), both),
        **dict.fromkeys(("axolotl", "ms-swift"), (*both, "grpo", "reward")),
        "verl": ("sft", "grpo", "ppo"),
    }
    said = known.get(name, ("sft",))
    assert starts_only or cannot.harmless == said


@pytest.mark.parametrize("model", ["bert-base-uncased", "flux.1-dev"])
def test_an_objective_of_a_model_that_writes_nothing_is_one_fault(model):
    data = {"train": "train.jsonl", "samples": 1000}
    found = planned(model=model, method="lora", data=data, objective=GRPO, targets=["trl"])
    assert [each.id for each in found.diagnostics if each.severity == "error"] == ["E0804"]
