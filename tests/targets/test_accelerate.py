"""accelerate.yaml: what is emitted comes back, and what others wrote is read."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from tests.fsdp_plugin import FSDP, check_plugin
from tests.plans import plan_of
from tests.random_plans import plans

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose
from tunec.compiler.emit import emit
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_plain, read, recognise
from tunec.targets.accelerate.target import TARGET
from tunec.targets.registry import TARGETS

BY_IT = {"launch.launcher": "accelerate"}
DDP = {"parallel.engine": "ddp", "zero.stage": 0, "states.autocast": True}
SHARED = {"parallel.sequence": 4, "parallel.data": 2, "batch.global": 16}
VERSIONS = ("0.30.1", "1.0.1", "1.6.0", "1.15.0")
CASES: Mapping[str, Plan] = {
    "ddp": plan_of(DDP, BY_IT),
    "fp16": plan_of(DDP, BY_IT, {"precision.compute": "fp16"}),
    "no autocast": plan_of(DDP, BY_IT, {"states.autocast": False}),
    "one process": plan_of(
        DDP,
        BY_IT,
        {
            "parallel.engine": "none",
            "devices.per_node": 1,
            "parallel.world": 1,
            "parallel.data": 1,
            "batch.global": 8,
        },
    ),
    "two nodes": plan_of(
        DDP,
        BY_IT,
        {"devices.nodes": 2, "parallel.world": 16, "parallel.data": 16, "batch.global": 128},
    ),
    "zero 3": plan_of(BY_IT, {"zero.stage": 3}),
    "zero 2": plan_of(BY_IT, {"zero.stage": 2}),
    "shared sequences": plan_of(BY_IT, {"zero.stage": 2, **SHARED}),
    **FSDP,
}
FIRST: Mapping[str, str] = {
    "fsdp 2, parameters kept": "1.6",
    "fsdp 2": "1.7",
    "fsdp 1": "0.31",
    "shared sequences": "1.12",
}
"""The first release that can be told a case: FSDP 2, its full checkpoints, and recomputation by
FSDP."""
RUNS = tuple(
    (version, name)
    for version in VERSIONS
    for name in CASES
    if Version(version)
    >= Version(next((first for case, first in FIRST.items() if name.startswith(case)), "0"))
)


def emitted(plan: Plan, version: str) -> str:
    artifacts, faults = emit(TARGET, plan, Version(version))
    assert not faults
    (artifact,) = artifacts
    return artifact.text


def beside(plan: Plan) -> dict[str, str]:
    """The ds_config.json that the file names, where it names one."""
    if plan.parallel.engine != "deepspeed":
        return {}
    target = TARGETS["deepspeed"]
    artifacts, _ = emit(target, plan, Version(target.latest))
    return {each.name: each.text for each in artifacts}


@pytest.fixture(scope="module")
def resolved():
    """What each release makes of each case's file, with ds_config.json beside it."""

    def ask_all(version: str) -> dict[str, Any]:
        cases = {name: CASES[name] for each, name in RUNS if each == version}
        asked = [
            {
                "verb": "resolve",
                "yaml": emitted(plan, version),
                "argv": ["--main_process_ip", "10.0.0.1", "--main_process_port", "29501"],
                "files": beside(plan),
            }
            for plan in cases.values()
        ]
        environment = prepare(choose("accelerate", version).requirements)
        answers = ask(environment, "tunec.targets.accelerate.consumer", asked)
        return dict(zip(cases, answers, strict=True))

    return {version: ask_all(version) for version in VERSIONS}


@pytest.mark.parametrize(("version", "name"), RUNS)
def test_the_real_launcher_resolves_the_plan(resolved, version, name):
    plan, answer = CASES[name], resolved[version][name]
    assert answer["refused"] is None
    assert answer["version"] == version
    engine, said = plan.parallel.engine, answer["environment"]
    assert answer["arguments"]["use_deepspeed"] is (engine == "deepspeed")
    assert answer["arguments"]["multi_gpu"] is (engine == "ddp")
    mixed = plan.precision.compute if plan.states.autocast and engine != "deepspeed" else "no"
    assert said["ACCELERATE_MIXED_PRECISION"] == mixed
    if engine != "none":
        assert answer["torchrun"]["nproc_per_node"] == str(plan.devices.per_node)
    if plan.devices.nodes > 1:
        assert answer["torchrun"]["nnodes"] == str(plan.devices.nodes)
    if engine == "fsdp":
        assert answer["arguments"]["use_fsdp"] is True
        check_plugin(plan, answer["plugin"])
    if engine == "deepspeed":
        assert answer["plugin"]["zero_stage"] == plan.zero.stage
        assert answer["plugin"]["zero3_init_flag"] is (plan.zero.stage == 3)


@given(st.data())
def test_every_said_slot_comes_back(data):
    plan = Plan.of({**data.draw(plans()).values(), **BY_IT})
    version = Version(data.draw(st.sampled_from(TARGET.releases)))
    artifacts, faults = emit(TARGET, plan, version)
    lost = {each.labels[0].path for each in faults if each.id == "E0901"}
    for artifact in artifacts:
        assert recognise(TARGET, dict(artifact.values)) is TARGET.files[0]
        found = {artifact.name: found_plain(dict(artifact.values))}
        said = {
            slot
            for entry in TARGET.files[0].entries
            if entry.when(plan) and entry.holds_in(TARGET.dialect(version))
            for slot in entry.slots
            if slot not in lost
        }
        for each in read(TARGET, found, version):
            if each.rank is Rank.OBSERVED and each.slot in said:
                assert each.value == plan[each.slot], each.slot


def said(document: Mapping[str, Any], version: str = "1.15.0") -> dict[str, Any]:
    found = {"accelerate.yaml": found_plain(dict(document))}
    return {each.slot: each.value for each in read(TARGET, found, Version(version))}


def test_inline_keys_are_read_where_no_file_is_named():
    inline = {"zero_stage": 3, "offload_param_device": "cpu", "gradient_clipping": "1.0"}
    document = {"distributed_type": "DEEPSPEED", "deepspeed_config": inline}
    read_back = said(document)
    assert read_back["zero.stage"] == 3
    assert read_back["zero.offload_param"] == "cpu"
    assert read_back["zero.offload_optimizer"] == "none"
    assert read_back["optimizer.max_grad_norm"] == 1.0
    named = {**inline, "deepspeed_config_file": "ds.json"}
    assert "zero.stage" not in said({**document, "deepspeed_config": named})


def test_ranks_that_share_are_read_whatever_shares_them():
    def shared(**widths: int) -> tuple[Any, Any]:
        section = {f"parallelism_config_{name}": size for name, size in widths.items()}
        found = said({"distributed_type": "FSDP", "parallelism_config": section})
        return found["parallel.sequence"], found.get("parallel.tensor")

    assert shared(sp_size=4, cp_size=1) == (4, None)
    assert shared(sp_size=1, cp_size=2, tp_size=2) == (2, 2)
    assert said({"distributed_type": "DEEPSPEED"})["parallel.sequence"] == 1


def test_a_run_without_deepspeed_says_nothing_of_zero():
    assert "zero.stage" not in said({"distributed_type": "MULTI_GPU", "num_processes": 2})
    assert "fsdp.version" not in said({"distributed_type": "MULTI_GPU", "num_processes": 2})


def test_a_silent_section_of_fsdp_is_read_as_accelerate_reads_it():
    """The plugins of schemas/json/accelerate/defaults.json."""
    first = said({"distributed_type": "FSDP", "num_processes": 2, "fsdp_config": {}})
    assert first["parallel.engine"] == "fsdp"
    assert first["fsdp.version"] == 1
    assert first["fsdp.sharding"] == "full"
    assert first["fsdp.backward_prefetch"] == "none"
    assert first["fsdp.state_dict"] == "full"
    assert first["fsdp.wrap"] == "none"
    second = said({"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}})
    assert second["fsdp.version"] == 2
    assert second["fsdp.state_dict"] == "sharded"
    assert second["fsdp.use_orig_params"] is True


def test_devices_are_read_by_their_numbers():
    assert said({"distributed_type": "MULTI_GPU", "gpu_ids": "0,2"})["devices.visible"] == (
        "0",
        "2",
    )
    assert said({"distributed_type": "MULTI_GPU", "gpu_ids": "all"})["devices.visible"] == ()


def test_launch_reads_and_writes_the_same_file():
    assert TARGETS["launch"].files[1] is TARGET.files[0]
