"""FSDP by the Trainer's arguments: what accelerate's plugin is made of, in each era of the keys."""

from collections.abc import Mapping
from typing import Any

import pytest
from packaging.version import Version
from tests.fsdp_plugin import FSDP, check_plugin
from tests.plans import FSDP_1, FSDP_2, plan_of

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose
from tunec.compiler.emit import emit
from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_plain, read
from tunec.schemas.frozen import replace
from tunec.targets.registry import TARGETS

TARGET = TARGETS["huggingface"]
NAME = "training_args.yaml"
VERSIONS = ("4.44.2", "5.0.0", "5.6.2", "5.23.0")


def sayable(plan: Plan, version: str) -> Plan:
    """The plan, but for what this release has no key for."""
    fsdp = plan.fsdp
    if Version(version) < Version("5.10"):
        fsdp = replace(fsdp, state_dict="full" if fsdp.version == 1 else "sharded")
    if fsdp.version == 1 and Version(version) >= Version("5.4"):
        fsdp = replace(fsdp, sharding="full")
    launch = replace(plan.launch, launcher="torchrun")
    return replace(plan, fsdp=fsdp, launch=launch)


RUNS = tuple(
    (version, name)
    for version in VERSIONS
    for name, plan in FSDP.items()
    if plan.fsdp.version == 1 or Version(version) >= Version("5.0")
)


def emitted(plan: Plan, version: str) -> str:
    artifacts, faults = emit(TARGET, plan, Version(version))
    assert not [each for each in faults if each.severity == "error"]
    return next(each.text for each in artifacts if each.name == NAME)


@pytest.fixture(scope="module")
def told():
    def ask_all(version: str) -> dict[str, Any]:
        names = [name for each, name in RUNS if each == version]
        asked = [
            {
                "verb": "resolve",
                "yaml": emitted(sayable(FSDP[name], version), version),
                "world_size": 8,
            }
            for name in names
        ]
        environment = prepare(choose("transformers", version).requirements)
        answers = ask(environment, "tunec.targets.huggingface.consumer", asked)
        return dict(zip(names, answers, strict=True))

    return {version: ask_all(version) for version in VERSIONS}


@pytest.mark.parametrize(("version", "name"), RUNS)
def test_the_trainer_builds_the_plugin_of_the_plan(told, version, name):
    answer = told[version][name]
    assert answer["refused"] is None
    check_plugin(sayable(FSDP[name], version), answer["fsdp"])


def read_back(document: Mapping[str, Any], version: str = "5.23.0") -> dict[str, Any]:
    found = {NAME: found_plain({"output_dir": "out", **document})}
    return {each.slot: each.value for each in read(TARGET, found, Version(version))}


def test_fsdp_2_has_no_key_before_5():
    _, faults = emit(TARGET, plan_of(FSDP_2), Version("4.57.6"))
    by_accelerate = plan_of(FSDP_2, {"launch.launcher": "torchrun"})
    _, without = emit(TARGET, by_accelerate, Version("4.57.6"))
    assert "E0901" not in {each.id for each in faults}
    assert "fsdp.version" in {each.labels[0].path for each in without if each.id == "E0901"}


def test_a_strategy_that_accelerate_drops_is_read_as_what_runs():
    config = {"version": 1, "reshard_after_forward": "shard_grad_op"}
    assert read_back({"fsdp": True, "fsdp_config": config})["fsdp.sharding"] == "full"
    _, faults = emit(
        TARGET,
        plan_of(FSDP_1, {"fsdp.sharding": "grad_op", "launch.launcher": "torchrun"}),
        Version("5.23.0"),
    )
    assert "fsdp.sharding" in {each.labels[0].path for each in faults if each.id == "E0901"}


def test_words_and_switch_are_read_alike():
    words = read_back({"fsdp": "shard_grad_op auto_wrap offload", "fsdp_config": {"version": 2}})
    switch = {"version": 2, "reshard_after_forward": False, "cpu_offload": True}
    assert words == read_back({"fsdp": True, "fsdp_config": switch})
    assert words["parallel.engine"] == "fsdp"
    assert words["fsdp.offload_params"] is True


@pytest.mark.parametrize("value", [None, False, "", []])
def test_a_run_without_fsdp_says_nothing_of_it(value):
    said = read_back({"fsdp": value, "fsdp_config": {"version": 2}})
    assert not [slot for slot in said if slot.startswith("fsdp.")]
    assert "parallel.engine" not in said


def test_another_file_of_settings_is_not_guessed_at():
    assert "fsdp.version" not in read_back({"fsdp": "full_shard", "fsdp_config": "fsdp.json"})
