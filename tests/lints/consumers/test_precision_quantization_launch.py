"""What rules say of precision, quantisation, recomputation and launching, asked for real."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")
pytest.importorskip("transformers")
pytest.importorskip("trl")


pytestmark = pytest.mark.usefixtures("own_environment")


# ── precision ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("dtype", "is_refused"), [("float16", True), ("float32", False)])
def test_fp16_trainable_weights(dtype: str, *, is_refused: bool) -> None:
    weight = torch.nn.Parameter(torch.ones(4, dtype=getattr(torch, dtype)))
    optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler("cpu")
    scaler.scale((weight.float() * 2).sum()).backward()
    if is_refused:
        with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
            scaler.unscale_(optimizer)
    else:
        scaler.unscale_(optimizer)


def _filled(config: dict[str, Any], **said: Any) -> dict[str, Any]:
    """A DeepSpeed config as the Trainer fills it in."""
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    arguments = {
        **dict.fromkeys(("fp16", "bf16", "fp16_full_eval", "bf16_full_eval"), False),
        "world_size": 1,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "max_grad_norm": 1.0,
        "learning_rate": 1e-4,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-8,
        "weight_decay": 0.0,
        "save_on_each_node": False,
        **said,
    }
    filled = HfTrainerDeepSpeedConfig(
        {
            "train_micro_batch_size_per_gpu": "auto",
            "zero_optimization": {"stage": 2},
            **config,
        }
    )
    filled.trainer_config_process(SimpleNamespace(**arguments))
    found: dict[str, Any] = filled.config
    return found


def test_full_eval_turns_half_on() -> None:
    auto = {"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}
    assert _filled(auto, fp16_full_eval=True)["fp16"]["enabled"] is True
    assert _filled(auto, bf16_full_eval=True)["bf16"]["enabled"] is True


def test_automatic_precision_off() -> None:
    found = _filled({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}})
    assert found["fp16"]["enabled"] is False
    assert found["bf16"]["enabled"] is False


@pytest.mark.parametrize("stage", [0, 2])
def test_half_master_weights_without_zero(stage: int) -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    config = {
        "train_micro_batch_size_per_gpu": 1,
        "fp16": {"enabled": True, "fp16_master_weights_and_grads": True},
        "zero_optimization": {"stage": stage},
    }
    if stage:
        DeepSpeedConfig(config)
        return
    with pytest.raises(AssertionError, match="only supported with ZeRO"):
        DeepSpeedConfig(config)


@pytest.mark.parametrize("rate", [1e-6, 1e-2])
def test_bf16_updates_lost(rate: float) -> None:
    """The weight that the rule names stands still, and one below it moves."""
    least = rate * 512
    for size, moves in ((least * 2, False), (least / 4, True)):
        weight = torch.tensor([size], dtype=torch.bfloat16)
        assert bool((weight - rate != weight).all()) is moves


# ── quantisation ─────────────────────────────────────────────────────────────────────────────────


def test_four_and_eight_bits() -> None:
    from transformers import BitsAndBytesConfig
    from trl import ModelConfig

    with pytest.raises(ValueError, match="only one can be used"):
        BitsAndBytesConfig(load_in_4bit=True, load_in_8bit=True)
    with pytest.raises(ValueError, match="8 bit and 4 bit"):
        ModelConfig(load_in_4bit=True, load_in_8bit=True)


def test_four_bits_computed_in_fp32() -> None:
    from trl import ModelConfig, get_quantization_config

    found = get_quantization_config(ModelConfig(load_in_4bit=True))
    assert found is not None
    assert found.bnb_4bit_compute_dtype == torch.float32


def test_quantization_options_ignored() -> None:
    from trl import ModelConfig, get_quantization_config

    options = ModelConfig(use_bnb_nested_quant=True, bnb_4bit_quant_type="nf4")
    assert get_quantization_config(options) is None


def test_quantised_twice() -> None:
    from transformers import BitsAndBytesConfig
    from transformers.quantizers.auto import AutoHfQuantizer

    stored = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
    with pytest.raises(ValueError, match="make sure to pass the same quantization config class"):
        AutoHfQuantizer.merge_quantization_configs(stored, BitsAndBytesConfig(load_in_8bit=True))


def test_full_fine_tune_of_quantised_base() -> None:
    from transformers.trainer_utils import validate_quantization_for_training

    quantizer = SimpleNamespace(is_trainable=True, is_qat_trainable=False)
    model = SimpleNamespace(is_quantized=True, hf_quantizer=quantizer)
    with pytest.raises(ValueError, match="purely quantized models"):
        validate_quantization_for_training(model)


# ── recomputation ────────────────────────────────────────────────────────────────────────────────


def test_contiguous_without_partition() -> None:
    from deepspeed import checkpointing

    with pytest.raises(AssertionError, match="only available with partitioned activations"):
        checkpointing.configure(None, contiguous_checkpointing=True, num_checkpoints=2)


# ── launching ────────────────────────────────────────────────────────────────────────────────────


def test_include_with_count() -> None:
    from deepspeed.launcher.runner import main

    with pytest.raises(ValueError, match="Cannot specify num_nodes/gpus with include/exclude"):
        main(["--include", "localhost:0", "--num_gpus", "1", "train.py"])


def test_nodes_without_meeting_point() -> None:
    from torch.distributed.run import get_rdzv_endpoint, parse_args

    os.environ["MASTER_ADDR"] = "10.0.0.1"
    found = parse_args(["--nnodes", "2", "--nproc_per_node", "8", "train.py"])
    assert get_rdzv_endpoint(found).startswith("127.0.0.1:")


def test_cpu_optimizer_on_one_thread() -> None:
    from torch.distributed.run import config_from_args, parse_args

    os.environ.pop("OMP_NUM_THREADS", None)
    config_from_args(parse_args(["--nproc_per_node", "4", "train.py"]))
    assert os.environ["OMP_NUM_THREADS"] == "1"


def test_one_device_for_multi_gpu(tmp_path: Path) -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    file = tmp_path / "accelerate.yaml"
    file.write_text("distributed_type: MULTI_GPU\ngpu_ids: '0'\nnum_processes: 1\n", "utf-8")
    parser = launch_command_parser()
    with pytest.raises(ValueError, match="Less than two GPU ids"):
        _validate_launch_command(parser.parse_args(["--config_file", str(file), "train.py"]))
    with pytest.raises(ValueError, match="at least 2 processes"):
        _validate_launch_command(
            parser.parse_args(["--multi_gpu", "--num_processes", "1", "train.py"])
        )
