"""What rules say of settings in DeepSpeed's and accelerate's files, asked of the programs."""

import inspect
import json
import sys
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from apart import apart  # noqa: E402
from programs import example  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate"):
    pytest.importorskip(needed)


def launched(rule: str, number: int = 0, kind: str = "bad") -> dict[str, Any]:
    """What accelerate's launcher makes of the file of a rule's example."""
    from tunec.targets.accelerate.consumer.resolve import resolve

    files = dict(example(rule, kind, number).files)
    return resolve({"yaml": files.pop("accelerate.yaml"), "files": files})


def arguments(rule: str, number: int = 0, kind: str = "bad") -> dict[str, Any]:
    """The trainer's arguments of a rule's example."""
    held: dict[str, Any] = yaml.safe_load(example(rule, kind, number).files["args.yaml"])
    return held


@pytest.mark.parametrize(("number", "method"), [(0, "split"), (1, "split"), (2, "lower")])
def test_a_word_that_is_no_text_has_no_letters(number: int, method: str) -> None:
    refused = launched("word-of-another-type", number)["refused"]
    assert refused["message"].endswith(f"has no attribute '{method}'")
    assert launched("word-of-another-type", 0, "good")["refused"] is None


def test_a_file_in_the_place_of_a_block_is_passed_over() -> None:
    held = launched("word-of-another-type", 3)
    assert held["refused"] is None
    assert held["plugin"]["zero_stage"] == 2


def test_the_launcher_asks_its_file_where_a_flag_is_none_alone() -> None:
    assert launched("key-of-flags-only")["arguments"]["rdzv_backend"] == "static"
    assert "ACCELERATE_CPU_AFFINITY" not in launched("key-of-flags-only", 1)["environment"]
    assert "ACCELERATE_USE_CPU" not in launched("key-of-flags-only", 2)["environment"]


def test_a_plugin_asks_for_a_truth_value() -> None:
    refused = launched("plugin-setting-refused")["refused"]
    assert "invalid truth value" in refused["message"]
    assert launched("plugin-setting-refused", 0, "good")["refused"] is None


def test_a_stand_in_for_a_scheduler_has_no_step() -> None:
    """section-without-type: what is left where DeepSpeed makes no scheduler of the section"""
    from accelerate.scheduler import AcceleratedScheduler
    from accelerate.utils import DummyScheduler

    left = AcceleratedScheduler(DummyScheduler(None), [], step_with_optimizer=False)
    with pytest.raises(AttributeError, match="no attribute 'step'"):
        left.step()


def test_accelerate_puts_an_accumulation_of_one() -> None:
    from accelerate import DeepSpeedPlugin

    found = {}
    for kind in ("bad", "good"):
        held = json.loads(example("accumulation-left-out", kind, 0).files["ds_config.json"])
        config = DeepSpeedPlugin(hf_ds_config=held).deepspeed_config
        found[kind] = config["gradient_accumulation_steps"]
    assert found == {"bad": 1, "good": "auto"}


def test_a_list_of_classes_is_one_text() -> None:
    names = launched("plugin-setting-refused", 1)["plugin"]["transformer_cls_names_to_wrap"]
    assert names == ["['LlamaDecoderLayer'", " 'LlamaMLP']"]


def test_nothing_is_compiled_without_a_backend() -> None:
    held = launched("compile-mode-without-backend")["environment"]
    assert held["ACCELERATE_DYNAMO_BACKEND"] == "NO"


def _state(plugin: Any) -> None:
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType, ParallelismConfig, TorchDynamoPlugin

    PartialState(cpu=True)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    AcceleratorState(
        parallelism_config=ParallelismConfig(cp_size=2),
        fsdp_plugin=plugin,
        dynamo_plugin=TorchDynamoPlugin(),
        _from_accelerator=True,
    )


@pytest.mark.parametrize(
    ("plugin", "text"),
    [(None, "no `fsdp_plugin` was provided"), (SimpleNamespace(fsdp_version=1), "requires FSDP2")],
)
def test_a_width_of_context_asks_for_fsdp_2(plugin: Any, text: str) -> None:
    assert text in apart(_state, plugin)


def test_a_precision_of_the_launcher_is_compared_with_the_file() -> None:
    from accelerate import DeepSpeedPlugin

    held = json.loads(example("launcher-precision-refused", "bad", 0).files["ds_config.json"])
    DeepSpeedPlugin(hf_ds_config=deepcopy(held)).set_mixed_precision("bf16")
    with pytest.raises(ValueError, match="cannot be set to `fp16` when `bf16` is set"):
        DeepSpeedPlugin(hf_ds_config=deepcopy(held)).set_mixed_precision("fp16")


def test_accelerate_gives_deepspeed_no_data() -> None:
    """The loader that DeepSpeed would build of them is the one that reads these settings."""
    from accelerate import Accelerator
    from deepspeed.runtime.engine import DeepSpeedEngine

    assert "training_data" not in inspect.getsource(Accelerator._prepare_deepspeed)
    engine = SimpleNamespace(
        **dict.fromkeys(("collate_fn", "mpu", "dp_world_size", "global_rank", "local_rank")),
        data_parallel_group=None,
        tput_timer=None,
        is_map_style_dataset=lambda _: True,
        is_iterable_style_dataset=lambda _: False,
        train_micro_batch_size_per_gpu=lambda: 2,
        curriculum_learning_enabled=lambda: False,
        dataloader_drop_last=lambda: True,
    )
    with patch("deepspeed.runtime.engine.DeepSpeedDataLoader", MagicMock()) as loader:
        DeepSpeedEngine.deepspeed_io(engine, [1])
    assert loader.call_args.kwargs["dataloader_drop_last"] is True


def test_autotuning_ends_the_process() -> None:
    from deepspeed.runtime.engine import DeepSpeedEngine

    with pytest.raises(SystemExit):
        DeepSpeedEngine._autotuning_exit(SimpleNamespace(global_rank=1))


def test_yaml_is_no_json(tmp_path: Path) -> None:
    from accelerate.utils.deepspeed import HfDeepSpeedConfig

    for kind, name in (("bad", "ds_config.yaml"), ("good", "ds_config.json")):
        file = tmp_path / name
        file.write_text(example("file-of-another-format", kind, 0).files[name], "utf-8")
    assert HfDeepSpeedConfig(str(tmp_path / "ds_config.json")).is_zero2()
    with pytest.raises(json.JSONDecodeError):
        HfDeepSpeedConfig(str(tmp_path / "ds_config.yaml"))


def test_the_trainer_compares_a_policy_as_it_is_written(tmp_path: Path) -> None:
    from transformers import TrainingArguments

    held = {**arguments("fsdp-policy-refused"), "output_dir": str(tmp_path), "use_cpu": True}
    with pytest.raises(ValueError, match="must be one of"):
        TrainingArguments(**held)
    held = {**arguments("fsdp-policy-refused", 0, "good"), "output_dir": str(tmp_path)}
    assert TrainingArguments(**held, use_cpu=True).fsdp_plugin_args


def test_the_trainer_looks_for_its_own_keys_of_fsdp(tmp_path: Path) -> None:
    from transformers import TrainingArguments

    held = {**arguments("fsdp-key-unread"), "output_dir": str(tmp_path), "use_cpu": True}
    assert "cpu_offload" not in TrainingArguments(**held).fsdp_plugin_args
    held = {**arguments("fsdp-key-unread", 0, "good"), "output_dir": str(tmp_path)}
    assert TrainingArguments(**held, use_cpu=True).fsdp_plugin_args["cpu_offload"] is True


def test_the_newer_name_of_checkpointing_holds(tmp_path: Path) -> None:
    from transformers import TrainingArguments

    held = {**arguments("older-name-overridden"), "output_dir": str(tmp_path), "use_cpu": True}
    assert TrainingArguments(**held).gradient_checkpointing is False


def test_a_sampler_is_given_what_it_goes_by() -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    for number, needed in enumerate(("curriculum_metrics", "max_tokens")):
        text = example("sampler-settings-missing", "bad", number).files["ds_config.json"]
        with pytest.raises(AssertionError, match=f"{needed} must be specified"):
            DeepSpeedConfig(json.loads(text))
    DeepSpeedConfig(
        json.loads(example("sampler-settings-missing", "good", 0).files["ds_config.json"])
    )
