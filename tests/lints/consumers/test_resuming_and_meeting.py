"""Checkpoints, engines that are told twice, and meeting points, before their programs."""

import os
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from apart import apart  # noqa: E402
from programs import example  # noqa: E402
from test_started import trainer  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate"):
    pytest.importorskip(needed)

pytestmark = pytest.mark.usefixtures("own_environment")


def zero_block(rule: str) -> dict[str, Any]:
    said = yaml.safe_load(example(rule, "bad", 0).files["ds_config.json"])
    found: dict[str, Any] = said["zero_optimization"]
    return found


def test_deepspeed_takes_no_fraction_for_a_bucket() -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    block = zero_block("automatic-bucket-not-whole")
    width = 4096
    with pytest.raises(ValueError, match="a number with a fractional part"):
        DeepSpeedZeroConfig(**{**block, "stage3_prefetch_bucket_size": 0.9 * width * width})
    whole = DeepSpeedZeroConfig(**{**block, "stage3_prefetch_bucket_size": 0.9 * 5120 * 5120})
    assert whole.prefetch_bucket_size == 23592960


def test_an_old_key_is_read_as_its_successor() -> None:
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    held = DeepSpeedZeroConfig(**zero_block("deprecated-key"))
    assert held.gather_16bit_weights_on_model_save is True
    assert DeepSpeedZeroConfig(stage=2, cpu_offload=True).offload_optimizer.device == "cpu"
    assert DeepSpeedZeroConfig(stage=2, cpu_offload_use_pin_memory=True).offload_optimizer is None


def test_one_process_holds_all_states() -> None:
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs

    one, layer = 10**9, 10**7
    alone = estimate_zero3_model_states_mem_needs(one, layer, 1, 1, False, False)[1]
    spread = estimate_zero3_model_states_mem_needs(one, layer, 8, 1, False, False)[1]
    assert alone >= 18 * one > 7 * spread


def test_states_are_loaded_into_the_number_of_processes_that_wrote_them() -> None:
    from deepspeed.runtime.engine import DeepSpeedEngine

    engine = SimpleNamespace(
        _config=SimpleNamespace(zero_config=SimpleNamespace(pipeline_loading_checkpoint=False)),
        load_universal_checkpoint=lambda: False,
        seq_dp_world_size=4,
        loaded_checkpoint_dp_world_size=8,
    )
    with pytest.raises(
        Exception, match="used a DP world size of 8 but the current world size is 4"
    ):
        DeepSpeedEngine._load_zero_checkpoint(engine, "out/checkpoint-500", "global_step500")


def test_the_trainer_s_engine_takes_the_place_of_the_launcher_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import transformers

    monkeypatch.chdir(tmp_path)
    files = example("engine-settings-overridden", "bad", 0).files
    Path("ds_config.json").write_text(files["ds_config.json"], "utf-8")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
    here = {"output_dir": "out", "use_cpu": True, "report_to": "none"}
    alone = transformers.TrainingArguments(**here)
    assert alone.deepspeed_plugin.zero_stage == 2
    both = transformers.TrainingArguments(**here, deepspeed="ds_config.json")
    assert both.deepspeed_plugin.hf_ds_config.config["zero_optimization"]["stage"] == 3


def test_shards_are_no_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    held = trainer({"training_args.yaml": "output_dir: out\n"})
    kind = SimpleNamespace(state_dict_type="StateDictType.SHARDED_STATE_DICT")
    held.is_fsdp_enabled = True
    held.accelerator.state.fsdp_plugin = kind
    held.save_model("sharded")
    assert not list(Path("sharded").glob("*.safetensors"))
    kind.state_dict_type = "StateDictType.FULL_STATE_DICT"
    held.save_model("whole")
    assert list(Path("whole").glob("*.safetensors"))


def test_a_word_is_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    held = trainer({"training_args.yaml": 'output_dir: out\nresume_from_checkpoint: "False"\n'})
    with pytest.raises(ValueError, match="Can't find a valid checkpoint at False"):
        held.train(resume_from_checkpoint=held.args.resume_from_checkpoint)


@pytest.mark.parametrize("number", [0, 1])
def test_a_mapping_in_python_s_words_is_no_json(number: int) -> None:
    import shlex

    import transformers

    files = example("json-text-refused", "bad", number).files
    if "train.sh" in files:
        words = shlex.split(files["train.sh"].replace("\\\n", " "))
        key = "gradient_checkpointing_kwargs"
        said = {key: words[words.index(f"--{key}") + 1]}
    else:
        said = yaml.safe_load(files["training_args.yaml"])
    with pytest.raises(ValueError, match="Expecting property name"):
        transformers.TrainingArguments(
            **{**said, "output_dir": "out", "use_cpu": True, "bf16": False}
        )


def test_torchrun_does_not_read_the_port_s_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.run import parse_args

    for name, value in (("MASTER_PORT", "29511"), ("MASTER_ADDR", "10.0.0.1")):
        monkeypatch.setenv(name, value)
    held = parse_args(["--nproc_per_node", "2", "train.py"])
    assert (held.master_addr, held.master_port) == ("127.0.0.1", None)
    monkeypatch.setenv("PET_MASTER_PORT", "29511")
    assert parse_args(["--nproc_per_node", "2", "train.py"]).master_port == 29511


def test_deepspeed_sets_the_port_s_variable_by_its_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    import inspect

    from deepspeed.launcher import launch

    monkeypatch.setenv("MASTER_PORT", "29511")
    monkeypatch.setattr("sys.argv", ["launch.py", "--world_info=e30=", "train.py"])
    assert launch.parse_args().master_port == 29500
    assert 'current_env["MASTER_PORT"] = str(args.master_port)' in inspect.getsource(launch.main)


def test_an_address_with_a_user_is_nobody_s() -> None:
    address = yaml.safe_load(example("address-refused", "bad", 0).files["accelerate.yaml"])
    wait = timedelta(seconds=1)
    with pytest.raises(RuntimeError):
        torch.distributed.TCPStore(address["main_process_ip"], 29511, 2, False, wait)


def test_a_task_of_slurm_is_a_run_of_its_own() -> None:
    """The variables that srun sets, and none of a launcher's."""

    def counted() -> int:
        from accelerate import PartialState

        for name in ("RANK", "WORLD_SIZE"):
            os.environ.pop(name, None)
        os.environ.update({"SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_NTASKS": "8"})
        return int(PartialState(cpu=True).num_processes)

    assert apart(counted) == 1


def test_a_node_on_its_loopback_gives_others_its_own_address() -> None:
    """loopback-between-nodes"""
    text = example("loopback-between-nodes", "bad", 0).files["train.sh"]
    group = torch.distributed.ProcessGroupGloo
    options, store = group._Options(), torch.distributed.HashStore()
    options._devices = [group.create_device(interface=text.partition("IFNAME=")[2].split()[0])]
    options._timeout = timedelta(milliseconds=100)
    with pytest.raises(torch.distributed.DistStoreError):
        group(store, 0, 2, options)
    (key,) = store.list_keys()
    assert bytes([127, 0, 0, 1]) in store.get(key)


def test_deepspeed_takes_no_key_twice(tmp_path: Path) -> None:
    """E0107, which is silent where a trainer reads the file"""
    from deepspeed.runtime.config import DeepSpeedConfig

    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": 1, "train_batch_size": 2}', "utf-8")
    with pytest.raises(ValueError, match="Duplicate keys"):
        DeepSpeedConfig(str(file))
