"""What releases of TRL really make of the files of `trl sft`, `dpo`, `grpo` and `reward`."""

from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.version import Version
from tests.plans import DPO, GRPO, REWARD, plan_of

from tunec.compiler.consumers.sets import releases
from tunec.compiler.emit import emit
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import Loss
from tunec.compiler.read import found_plain, read, recognise
from tunec.schemas.frozen import replace
from tunec.targets.generate_schemas import FOLDER, text, trl_documents
from tunec.targets.trl.packages import known_keys
from tunec.targets.trl.target import TARGET

SETS = releases("trl")
VERSIONS = tuple(known.version for known in SETS)
NEW = tuple(each for each in VERSIONS if Version(each) >= Version("0.22"))
SINCE = {"grpo": Version("0.14"), "reward": Version("0.24")}
"""The first releases with the later scripts."""
METHODS = ("sft", "dpo", "grpo", "reward")
BARE = "model_name_or_path: model\noutput_dir: out\ndataset_name: data\nuse_cpu: true\n"
FILES: Mapping[tuple[str, str], str] = {
    ("sft", "bare"): BARE,
    ("dpo", "bare"): BARE,
    ("grpo", "bare"): BARE,
    ("reward", "bare"): BARE,
    ("sft", "half"): f"{BARE}fp16: true\n".replace("use_cpu: true\n", ""),
    ("sft", "no half"): f"{BARE}fp16: false\n",
    ("sft", "unknown"): f"{BARE}lerning_rate: 0.1\n",
    ("sft", "rate without a point"): f"{BARE}learning_rate: 5e-4\n",
    ("sft", "of dpo"): f"{BARE}beta: 0.1\n",
    ("dpo", "own"): f"{BARE}beta: 0.25\nuse_peft: true\nlora_r: 4\nlora_target_modules: [q, v]\n",
    ("grpo", "own"): f"{BARE}num_generations: 4\nmax_completion_length: 64\n",
    ("reward", "own"): f"{BARE}center_rewards_coefficient: 0.01\ndisable_dropout: false\n",
    ("reward", "of dpo"): f"{BARE}beta: 0.1\n",
    ("grpo", "of sft"): f"{BARE}packing: true\n",
    ("grpo", "of split groups"): (
        f"{BARE}eval_strategy: steps\neval_steps: 10\ndo_eval: true\n"
        "per_device_eval_batch_size: 3\nper_device_train_batch_size: 8\nnum_generations: 8\n"
    ),
}
ON_HUB = {"data.train": "trl-lib/tldr", "data.evaluation": None}
WHOLE = {"adapter.kind": "none", "objective.reference": "resident"}
PLANS: Mapping[str, Plan] = {
    "lora": plan_of(ON_HUB, {"zero.stage": 2}),
    "ddp": plan_of(ON_HUB, {"parallel.engine": "ddp", "states.autocast": True, "zero.stage": 0}),
    "liger": plan_of(ON_HUB, {"loss.path": "fused"}),
    "pieces": plan_of(ON_HUB, {"loss.path": "chunked"}),
    "dpo": plan_of(ON_HUB, DPO, {"objective.loss": "ipo", "objective.beta": 0.25}),
    "dpo of a whole model": plan_of(ON_HUB, DPO, WHOLE),
    "dpo, precomputed": plan_of(ON_HUB, DPO, WHOLE, {"objective.reference": "precomputed"}),
    "grpo": plan_of(ON_HUB, GRPO, {"objective.beta": 0.04, "objective.reference": "base"}),
    "grpo by vllm": plan_of(
        ON_HUB, GRPO, {"generation.engine": "vllm_colocate", "generation.device_share": 0.25}
    ),
    "reward": plan_of(ON_HUB, REWARD),
    "reward of a whole model": plan_of(
        ON_HUB, REWARD, {"adapter.kind": "none", "adapter.also_train": ()}
    ),
}
ONLY_PIECES = Version("1.15")
RUNS: Mapping[str, tuple[str, str]] = {
    "liger": ("0.10", "1.15"),
    "pieces": ("1.4", "9"),
    "dpo": ("0.9", "9"),
    "dpo of a whole model": ("0.9", "9"),
    "dpo, precomputed": ("1.9", "9"),
    "grpo": ("0.27", "9"),
    "grpo by vllm": ("0.27", "9"),
    "reward": ("0.24", "9"),
    "reward of a whole model": ("0.24", "9"),
}
"""The releases in which a plan can be said, from the first to before the last."""
SAID = [
    (version, name)
    for version in VERSIONS
    for name in PLANS
    for since, until in [RUNS.get(name, ("0", "9"))]
    if Version(since) <= Version(version) < Version(until)
]


def planned(name: str, version: str) -> Plan:
    """The plan as that release computes its loss, where the name does not say how."""
    if name in ("liger", "pieces") or PLANS[name].objective.kind == "reward":
        return PLANS[name]
    path = "chunked" if Version(version) >= ONLY_PIECES else "full"
    return replace(PLANS[name], loss=Loss(path))


def emitted(plan: Plan, version: str) -> dict[str, Any]:
    artifacts, faults = emit(TARGET, plan, Version(version))
    assert not faults, faults
    return {each.name: each for each in artifacts}


def questions() -> dict[str, Any]:
    asked: dict[str, Any] = {
        f"{method} {name}": {"verb": "resolve", "method": method, "yaml": content}
        for (method, name), content in FILES.items()
    }
    for version, name in SAID:
        plan = planned(name, version)
        files, method = emitted(plan, version), plan.objective.kind
        asked[f"plan {name} {version}"] = {
            "verb": "resolve",
            "method": method,
            "yaml": files[f"{method}.yaml"].text,
            "files": {key: each.text for key, each in files.items()},
            "world_size": plan.parallel.world,
        }
    return asked


QUESTIONS = questions()


def test_the_files_we_ship_are_what_the_releases_say(told):
    for path, content in trl_documents(list(told.values())).items():
        assert (FOLDER / path).read_text(encoding="utf-8") == text(content), path


@pytest.mark.parametrize("version", VERSIONS)
class TestEveryRelease:
    def test_known_keys_are_the_fields_of_the_real_classes(self, version, answer):
        for method in METHODS:
            found = answer(version, f"{method} bare")
            known = set(known_keys(method, Version(version)))
            if found["refused"]:
                assert found["refused"]["stage"] == "script"
                assert not known
            else:
                assert known == {*found["values"], "env"}

    def test_defaults_are_what_the_parser_gives(self, version, answer):
        """For every key that the file leaves out, but for what the class then works out itself."""
        for method in METHODS:
            found = answer(version, f"{method} bare")
            for key, schema in known_keys(method, Version(version)).items():
                if key in SETTLED or key in yaml.safe_load(BARE) or "default" not in schema:
                    continue
                assert found["values"][key] == schema["default"], (method, key)

    def test_what_absence_means_is_what_it_does(self, version, value):
        for method in METHODS:
            if Version(version) < SINCE.get(method, Version("0")):
                continue
            said = slots(method, BARE, version)
            for slot, key in ABSENT.items():
                if slot in said:
                    assert said[slot] == value(version, f"{method} bare", key), (method, slot)
            recomputes = value(version, f"{method} bare", "gradient_checkpointing")
            assert (said["activation_checkpointing.mode"] == "layer") is recomputes
            assert said["states.autocast"] is bool(value(version, f"{method} bare", "bf16"))

    def test_one_flag_of_two(self, version, value):
        said = slots("sft", FILES["sft", "no half"], version)
        on = bool(value(version, "sft no half", "bf16"))
        assert said["states.autocast"] is on
        assert on is (Version(version) >= Version("0.19"))
        assert slots("sft", FILES["sft", "half"], version)["precision.compute"] == "fp16"
        assert not value(version, "sft half", "bf16")

    def test_unknown_keys_are_refused_or_not_as_the_schema_says(self, version, told, answer):
        refuses = told[version].answers["sft"]["x-unknown"] == "refused"
        assert (answer(version, "sft unknown")["refused"] is not None) is refuses
        assert (answer(version, "sft of dpo")["refused"] is not None) is refuses

    def test_a_rate_without_a_point_is_text_to_the_oldest(self, version, value):
        found = value(version, "sft rate without a point", "learning_rate")
        assert found == ("5e-4" if Version(version) < Version("0.9") else 5e-4)

    def test_reads_the_keys_of_a_method(self, version, answer, value):
        assert value(version, "dpo own", "beta") == 0.25
        assert answer(version, "dpo own")["adapter"]["r"] == 4
        assert slots("dpo", FILES["dpo", "own"], version)["adapter.rank"] == 4
        if Version(version) >= SINCE["grpo"]:
            assert value(version, "grpo own", "num_generations") == 4
        if Version(version) >= SINCE["reward"]:
            assert value(version, "reward own", "center_rewards_coefficient") == 0.01
            assert answer(version, "reward of dpo")["refused"] is not None


@pytest.mark.parametrize(("version", "name"), SAID)
def test_the_real_script_resolves_the_plan(version, name, answer):
    found, plan = answer(version, f"plan {name} {version}"), planned(name, version)
    assert found["refused"] is None
    for key, value in emitted(plan, version)[f"{plan.objective.kind}.yaml"].values.items():
        held = found["values"][key]
        if isinstance(value, dict):
            assert {each: held[each] for each in value} == value
        elif key == "report_to":
            assert held == ([] if value == "none" else value)
        elif isinstance(value, list):  # one loss comes out of its list in 0.20 to 0.28
            assert sorted([held] if isinstance(held, str) else held) == sorted(value)
        else:
            assert held == value, key


@pytest.mark.parametrize(("version", "name"), SAID)
def test_its_schema_admits_what_we_write(version, name, told):
    plan = planned(name, version)
    method = plan.objective.kind
    said = emitted(plan, version)[f"{method}.yaml"].values
    jsonschema.Draft202012Validator(told[version].answers[method]).validate(dict(said))


@pytest.mark.parametrize(("version", "name"), SAID)
def test_what_the_class_settles_on_is_the_plan(version, name, answer):
    """Every field of the objective, whether it was written or left to the release."""
    values, plan = answer(version, f"plan {name} {version}")["values"], planned(name, version)
    said = read(TARGET, {f"{plan.objective.kind}.yaml": found_plain(values)}, Version(version))
    settled = {each.slot: each.value for each in said}
    names = ("objective.", "generation.", "loss.")
    held = {slot for slot in settled if slot.startswith(names)}
    assert held
    assert {slot: settled[slot] for slot in held} == {slot: plan[slot] for slot in held}


def test_a_loss_that_a_release_does_not_compute_is_refused():
    for version, path in [("1.16.0", "full"), ("1.16.0", "fused"), ("1.3.0", "chunked")]:
        _, faults = emit(TARGET, plan_of(ON_HUB, {"loss.path": path}), Version(version))
        assert [(each.id, each.labels[0].path) for each in faults] == [("E0901", "loss.path")]


@pytest.mark.parametrize(
    ("version", "engine", "refused"),
    [
        ("0.17.0", "deepspeed", 1),
        ("0.17.0", "ddp", 0),
        ("1.0.0", "ddp", 1),
        ("1.8.0", "deepspeed", 1),
        ("1.9.2", "deepspeed", 0),
    ],
)
def test_a_reference_computed_before_training_needs_a_trainer_that_can(version, engine, refused):
    plan = replace(PLANS["dpo, precomputed"], loss=Loss("full"))
    plan = replace(plan, parallel=replace(plan.parallel, engine=engine))
    _, faults = emit(TARGET, plan, Version(version))
    assert [each.id for each in faults] == ["E0905"] * refused


def test_evaluation_that_splits_a_group_is_refused(answer):
    """As the class refuses it."""
    plan = plan_of(ON_HUB, GRPO, {"schedule.evaluation_steps": 10, "batch.evaluation": 3})
    group = replace(plan.generation, samples=16)
    files, faults = emit(TARGET, replace(plan, generation=group), Version("1.16.0"))
    assert [each.id for each in faults] == ["E0905"]
    assert "eval_steps: 10" in files[0].text
    refused = answer("1.16.0", "grpo of split groups")["refused"]
    assert "divisible by the number of generations used for evaluation" in refused["message"]


SETTLED = frozenset(
    {
        *("accelerator_config", "activation_checkpointing", "base_model_attribute_name", "bf16"),
        *("config", "dataloader_pin_memory", "debug", "disable_tqdm", "fsdp", "fsdp_config"),
        *("generate_during_eval", "generation_batch_size", "gradient_checkpointing_kwargs"),
        *("include_num_input_tokens_seen", "label_pad_token_id", "logging_dir", "loss_type"),
        *("max_completion_length", "max_prompt_length", "pad_to_multiple_of", "reference_free"),
        *("report_to", "run_name", "steps_per_generation", "use_logits_to_keep"),
    }
)
"""Fields that `__post_init__` of some release fills in or rewrites where they are left out, or that
`use_cpu` and the command line change here."""
ABSENT = {
    "schedule.log_steps": "logging_steps",
    "optimizer.learning_rate": "learning_rate",
    "batch.micro": "per_device_train_batch_size",
    "batch.accumulation": "gradient_accumulation_steps",
    "optimizer.max_grad_norm": "max_grad_norm",
    "optimizer.weight_decay": "weight_decay",
    "schedule.epochs": "num_train_epochs",
}


def slots(method: str, content: str, version: str) -> dict[str, Any]:
    found = found_plain(yaml.safe_load(content))
    said = read(TARGET, {f"{method}.yaml": found}, Version(version))
    return {each.slot: each.value for each in said}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (FILES["sft", "bare"], "sft.yaml"),
        (f"{BARE}packing: true\nloss_type: nll\n", "sft.yaml"),
        (FILES["dpo", "own"], "dpo.yaml"),
        (f"{BARE}precompute_ref_log_probs: true\n", "dpo.yaml"),
        (FILES["grpo", "own"], "grpo.yaml"),
        (f"{BARE}use_vllm: true\nbeta: 0.0\n", "grpo.yaml"),
        (FILES["reward", "own"], "reward.yaml"),
        (f"{BARE}use_peft: true\nlora_task_type: SEQ_CLS\n", "reward.yaml"),
        ("base_model: model\ncenter_rewards_coefficient: 0.1\n", None),
        ("output_dir: out\nlearning_rate: 0.1\n", None),
        ("model_name_or_path: model\nstage: dpo\nbeta: 0.1\nfinetuning_type: lora\n", None),
    ],
)
def test_a_file_is_known_by_its_keys(file, name):
    found = recognise(TARGET, yaml.safe_load(file))
    assert (found and found.name) == name
