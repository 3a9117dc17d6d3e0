"""What rules about FSDP and accelerate's file say, asked of accelerate and transformers."""

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("accelerate")
pytest.importorskip("transformers")
pytest.importorskip("deepspeed")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins read the environment: each test gets one without their variables."""
    for name in tuple(os.environ):
        if name.startswith(("FSDP_", "ACCELERATE_")):
            monkeypatch.delenv(name)


def _plugin(**variables: str) -> Any:
    from accelerate.utils import FullyShardedDataParallelPlugin

    os.environ.update({f"FSDP_{name}": value for name, value in variables.items()})
    return FullyShardedDataParallelPlugin()


REFUSED: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "fsdp-strategy-refused": ({"SHARDING_STRATEGY": "ZERO3"}, {"SHARDING_STRATEGY": "0"}),
    "fsdp-reshard-refused": ({"VERSION": "2", "RESHARD_AFTER_FORWARD": "full_shard"},),
    "fsdp-state-dict-refused": (
        {"VERSION": "2", "STATE_DICT_TYPE": "LOCAL_STATE_DICT"},
        {"STATE_DICT_TYPE": "SHARDED"},
    ),
    "fsdp-activation-offload-refused": (
        {"VERSION": "2", "ACTIVATION_CHECKPOINTING_OFFLOAD": "true"},
        {
            "VERSION": "1",
            "ACTIVATION_CHECKPOINTING": "true",
            "ACTIVATION_CHECKPOINTING_OFFLOAD": "true",
        },
    ),
}
"""What accelerate's launcher puts into the environment for the bad examples of these rules."""


@pytest.mark.parametrize("rule", REFUSED)
def test_accelerate_refuses_it(rule: str) -> None:
    for variables in REFUSED[rule]:
        with pytest.raises((ValueError, KeyError)):
            _plugin(**variables)


def test_the_good_words_are_taken() -> None:
    assert _plugin(SHARDING_STRATEGY="FULL_SHARD").sharding_strategy.value == 1
    assert _plugin(VERSION="2", RESHARD_AFTER_FORWARD="false").reshard_after_forward is False


def test_fsdp_2_passes_over_the_strategy_of_fsdp_1() -> None:
    """fsdp-keys-of-another-version: the launcher sets both variables."""
    found = _plugin(VERSION="2", SHARDING_STRATEGY="SHARD_GRAD_OP", RESHARD_AFTER_FORWARD="true")
    assert found.reshard_after_forward is True
    assert _plugin(VERSION="2", USE_ORIG_PARAMS="false").use_orig_params is None


def test_fsdp_1_passes_over_resharding() -> None:
    """fsdp-keys-of-another-version."""
    found = _plugin(VERSION="1", SHARDING_STRATEGY="FULL_SHARD", RESHARD_AFTER_FORWARD="false")
    assert found.sharding_strategy.name == "FULL_SHARD"
    assert found.reshard_after_forward is None


def test_a_model_is_one_unit_where_no_policy_is_named() -> None:
    """fsdp-wraps-nothing."""
    assert _plugin().auto_wrap_policy is None
    assert _plugin(AUTO_WRAP_POLICY="TRANSFORMER_BASED_WRAP").auto_wrap_policy is not None


def test_a_model_names_its_own_units_where_no_class_is_named() -> None:
    """Why fsdp-wraps-nothing is silent beside FSDP 2 by class."""
    from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
    from torch import nn

    model: Any = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model._no_split_modules = ["Linear"]
    plugin = _plugin(VERSION="2", AUTO_WRAP_POLICY="TRANSFORMER_BASED_WRAP")
    plugin.set_auto_wrap_policy(model)
    is_unit = fsdp2_prepare_auto_wrap_policy(plugin, model)
    assert [is_unit(each) for each in model] == [True, False]


def _launch(**config: Any) -> Namespace:
    from accelerate.commands.launch import launch_command_parser

    args: Namespace = launch_command_parser().parse_args(["--use_fsdp", "train.py"])
    for name, value in {"num_processes": 2, "num_machines": 1, **config}.items():
        setattr(args, name, value)
    args.mixed_precision, args.dynamo_backend, args.num_cpu_threads_per_process = "no", "no", 1
    args.main_process_port = 0
    return args


@pytest.mark.parametrize("config", [{"fsdp_sync_module_states": False}])
def test_the_launcher_refuses_to_load_without_sync(config: Mapping[str, Any]) -> None:
    """fsdp-loads-without-sync: loading on rank 0 is on unless it is turned off."""
    from accelerate.utils.launch import prepare_multi_gpu_env

    with pytest.raises(ValueError, match="fsdp_sync_module_states"):
        prepare_multi_gpu_env(_launch(**config))
    prepare_multi_gpu_env(_launch(**config, fsdp_cpu_ram_efficient_loading=False))


def test_the_launcher_rounds_processes_down() -> None:
    """processes-not-even-over-machines, machines-without-address."""
    from accelerate.utils.launch import prepare_multi_gpu_env

    args = _launch(num_processes=9, num_machines=2, machine_rank=1, same_network=False)
    prepare_multi_gpu_env(args)
    assert args.nproc_per_node == "4"
    assert args.rdzv_endpoint.startswith("None:")


def test_deepspeed_is_started_without_a_hostfile() -> None:
    """machines-without-hostfile."""
    from accelerate.utils.launch import prepare_deepspeed_cmd_env

    args = _launch(num_processes=16, num_machines=2, machine_rank=1)
    args.deepspeed_multinode_launcher = None
    args.deepspeed_fields_from_accelerate_config = ""
    command, _ = prepare_deepspeed_cmd_env(args)
    assert command[command.index("--hostfile") + 1] == "None"
    assert command[command.index("--launcher") + 1] == "pdsh"


def test_accelerate_asks_for_zero_in_the_file() -> None:
    """deepspeed-file-without-zero."""
    from accelerate import DeepSpeedPlugin

    with pytest.raises(ValueError, match="specify the ZeRO optimization config"):
        DeepSpeedPlugin(hf_ds_config={"train_micro_batch_size_per_gpu": 1})


def test_accelerate_turns_the_flag_of_stage_3_off() -> None:
    """zero-3-init-below-stage-3."""
    from accelerate import DeepSpeedPlugin

    with pytest.warns(UserWarning, match="only applicable for ZeRO Stage 3"):
        found = DeepSpeedPlugin(zero_stage=2, zero3_init_flag=True)
    assert found.zero3_init_flag is False


def test_accelerate_asks_for_the_engine() -> None:
    """distributed-type-missing."""
    from accelerate.commands.config.config_args import ClusterConfig

    with pytest.raises(ValueError, match="distributed_type"):
        ClusterConfig.process_config({"num_processes": 8})


@pytest.mark.parametrize("option", ["full_shard, auto_wrap", "hybrid_shard auto_wrap", "FULL"])
def test_the_trainer_refuses_the_option(option: str, tmp_path: Any) -> None:
    """fsdp-strategy-refused."""
    from transformers import TrainingArguments

    with pytest.raises(ValueError, match="fsdp"):
        TrainingArguments(output_dir=str(tmp_path), fsdp=option, use_cpu=True)
