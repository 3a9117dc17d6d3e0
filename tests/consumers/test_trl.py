"""What releases of TRL really make of the files of `trl sft`, `trl dpo` and `trl grpo`."""

from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.version import Version
from tests.plans import plan_of

from tunec.compiler.consumers.environments import EnvironmentUnavailable
from tunec.compiler.consumers.sets import releases
from tunec.compiler.emit import emit
from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_plain, read, recognise
from tunec.targets.generate_schemas import FOLDER, tell_all, text, trl_documents
from tunec.targets.trl.schemas import known_keys
from tunec.targets.trl.target import TARGET

SETS = releases("trl")
VERSIONS = tuple(known.version for known in SETS)
NEW = tuple(each for each in VERSIONS if Version(each) >= Version("0.22"))
WITH_GRPO = tuple(each for each in VERSIONS if Version(each) >= Version("0.14"))
METHODS = ("sft", "dpo", "grpo")
BARE = "model_name_or_path: model\noutput_dir: out\ndataset_name: data\nuse_cpu: true\n"
FILES: Mapping[tuple[str, str], str] = {
    ("sft", "bare"): BARE,
    ("dpo", "bare"): BARE,
    ("grpo", "bare"): BARE,
    ("sft", "half"): f"{BARE}fp16: true\n".replace("use_cpu: true\n", ""),
    ("sft", "no half"): f"{BARE}fp16: false\n",
    ("sft", "unknown"): f"{BARE}lerning_rate: 0.1\n",
    ("sft", "rate without a point"): f"{BARE}learning_rate: 5e-4\n",
    ("sft", "of dpo"): f"{BARE}beta: 0.1\n",
    ("dpo", "own"): f"{BARE}beta: 0.25\nuse_peft: true\nlora_r: 4\nlora_target_modules: [q, v]\n",
    ("grpo", "own"): f"{BARE}num_generations: 4\nmax_completion_length: 64\n",
    ("grpo", "of sft"): f"{BARE}packing: true\n",
}
ON_HUB = {"data.train": "trl-lib/tldr", "data.evaluation": None}
PLANS: Mapping[str, Plan] = {
    "lora": plan_of(ON_HUB, {"zero.stage": 2}),
    "ddp": plan_of(ON_HUB, {"parallel.engine": "ddp", "states.autocast": True, "zero.stage": 0}),
}


def emitted(plan: Plan, version: str) -> dict[str, Any]:
    artifacts, faults = emit(TARGET, plan, Version(version))
    assert not faults, faults
    return {each.name: each for each in artifacts}


def questions() -> dict[str, Any]:
    asked: dict[str, Any] = {
        f"{method} {name}": {"verb": "resolve", "method": method, "yaml": content}
        for (method, name), content in FILES.items()
    }
    for version in VERSIONS:
        for name, plan in PLANS.items():
            files = emitted(plan, version)
            asked[f"plan {name} {version}"] = {
                "verb": "resolve",
                "method": "sft",
                "yaml": files["sft.yaml"].text,
                "files": {key: each.text for key, each in files.items()},
                "world_size": plan.parallel.world,
            }
    return asked


@pytest.fixture(scope="module")
def told():
    """Every release's answers to all questions, asked once."""
    try:
        return {each.known.version: each for each in tell_all(SETS, questions())}
    except EnvironmentUnavailable as unavailable:
        pytest.skip(f"not checked: {unavailable}")


@pytest.fixture
def answer(told):
    return lambda version, name: told[version].answers[name]


@pytest.fixture
def value(answer):
    def of(version: str, name: str, key: str) -> Any:
        assert answer(version, name)["refused"] is None
        return answer(version, name)["values"][key]

    return of


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
            if method == "grpo" and version not in WITH_GRPO:
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
        if version in WITH_GRPO:
            assert value(version, "grpo own", "num_generations") == 4

    @pytest.mark.parametrize("name", PLANS)
    def test_the_real_script_resolves_the_plan(self, version, name, answer):
        found = answer(version, f"plan {name} {version}")
        assert found["refused"] is None
        said = emitted(PLANS[name], version)["sft.yaml"].values
        for key, value in said.items():
            held = found["values"][key]
            if isinstance(value, dict):
                assert {each: held[each] for each in value} == value
            elif key == "report_to":
                assert held == ([] if value == "none" else value)
            elif isinstance(value, list):
                assert sorted(held) == sorted(value)
            else:
                assert held == value, key

    @pytest.mark.parametrize("name", PLANS)
    def test_its_schema_admits_what_we_write(self, version, name, told):
        said = emitted(PLANS[name], version)["sft.yaml"].values
        jsonschema.Draft202012Validator(told[version].answers["sft"]).validate(dict(said))


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
        ("output_dir: out\nlearning_rate: 0.1\n", None),
        ("model_name_or_path: model\nstage: dpo\nbeta: 0.1\nfinetuning_type: lora\n", None),
    ],
)
def test_a_file_is_known_by_its_keys(file, name):
    found = recognise(TARGET, yaml.safe_load(file))
    assert (found and found.name) == name
