"""What is left out, or not read, when a run is started: launchers, argparse and engines asked."""

import math
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from test_launchers import run_with, script, shell  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate", "peft"):
    pytest.importorskip(needed)


@pytest.mark.parametrize("number", [0, 1])
def test_argparse_asks_for_a_value(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """flag-without-value"""
    from transformers import HfArgumentParser, TrainingArguments

    words = script("flag-without-value", number).split("run_clm.py", 1)[1].split()
    with pytest.raises(SystemExit):
        HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
            words, return_remaining_strings=True
        )
    assert "expected one argument" in capsys.readouterr().err


def test_a_truth_value_without_a_default_asks_for_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from transformers import HfArgumentParser

    trl = pytest.importorskip("trl")
    words = script("flag-without-value", 2).split("trl.scripts.sft", 1)[1].split()
    with pytest.raises(SystemExit):
        HfArgumentParser(trl.SFTConfig).parse_args_into_dataclasses(
            words, return_remaining_strings=True
        )
    assert "argument --bf16: expected one argument" in capsys.readouterr().err


def test_argparse_knows_no_flag_of_one_dash() -> None:
    """flag-with-another-dash"""
    from transformers import HfArgumentParser, TrainingArguments

    words = script("flag-with-another-dash").split("--output_dir", 1)[1].split()
    with pytest.raises(ValueError, match="-num_train_epochs"):
        HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(["--output_dir", *words])


def test_argparse_takes_one_word_behind_the_sign() -> None:
    """word-of-no-flag"""
    from transformers import HfArgumentParser, TrainingArguments

    words = script("word-of-no-flag", 1).split("run_clm.py", 1)[1].split()
    with pytest.raises(ValueError, match="'models'"):
        HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)


def test_argparse_takes_one_word_for_a_number() -> None:
    from transformers import HfArgumentParser, TrainingArguments

    words = ["--output_dir", "out", "--learning_rate", "1e-4", "5"]
    with pytest.raises(ValueError, match="'5'"):
        HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)


@shell
def test_a_name_before_a_blank_is_a_command(tmp_path: Path) -> None:
    """assignment-with-blanks"""
    (told,) = run_with("torchrun", script("assignment-with-blanks"), tmp_path)
    assert not any(line.startswith("CUDA_VISIBLE_DEVICES=") for line in told)


def test_a_switch_takes_no_value() -> None:
    """switch-with-a-value"""
    from accelerate.commands.launch import launch_command_parser

    held = launch_command_parser().parse_args(script("switch-with-a-value").split()[2:])
    assert held.training_script == "true"


def test_a_file_is_no_module() -> None:
    """file-for-a-module"""
    import runpy

    from torch.distributed.run import parse_args

    held = parse_args(script("file-for-a-module").split()[1:])
    assert held.module
    with pytest.raises(ImportError):
        runpy.run_module(held.training_script)


@shell
def test_a_variable_that_is_not_set_is_no_word(tmp_path: Path) -> None:
    """script-variable-misspelt"""
    (told,) = run_with("torchrun", script("script-variable-misspelt"), tmp_path)
    assert told[0].startswith("--nproc_per_node train.py")


@pytest.mark.parametrize(("kind", "goes"), [("bad", False), ("good", True)])
def test_a_variable_is_exported_by_its_beginning(kind: str, goes: bool) -> None:
    """variable-left-behind"""
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator
    from deepspeed.launcher.runner import EXPORT_ENVS

    name = script("variable-left-behind", kind=kind).split()[1].partition("=")[0]
    exports = [*EXPORT_ENVS, *CUDA_Accelerator.export_envs(MagicMock())]
    assert any(name.startswith(each) for each in exports) is goes


@pytest.mark.parametrize("number", [0, 1])
def test_no_engine_is_started_by_its_settings(number: int) -> None:
    """engine-flags-unread"""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    words = script("engine-flags-unread", number).split()[2:]
    held, _, _ = _validate_launch_command(launch_command_parser().parse_args(words))
    assert not held.use_deepspeed
    assert not held.use_fsdp
    told = prepare_multi_gpu_env(held)
    assert not [name for name in told if name.startswith(("FSDP_", "ACCELERATE_DEEPSPEED"))]


def test_a_warm_up_of_deepspeed_rises_by_a_logarithm() -> None:
    """warmup-by-logarithm"""
    from deepspeed.runtime.lr_schedules import WarmupDecayLR

    def after(steps: int, **more: Any) -> float:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        schedule = WarmupDecayLR(optimizer, 5000, warmup_max_lr=1.0, warmup_num_steps=1000, **more)
        for _ in range(steps):
            schedule.step()
        return float(optimizer.param_groups[0]["lr"])

    assert after(100) == pytest.approx(math.log(100) / math.log(1000), rel=0.01)
    assert after(100, warmup_type="linear") == pytest.approx(0.1, abs=0.002)


@pytest.mark.parametrize(("stage", "refused"), [(1, True), (2, True), (3, False)])
def test_the_trainer_evaluates_by_stage_3_alone(stage: int, refused: bool, tmp_path: Path) -> None:
    """evaluation-below-stage-3"""
    from transformers import TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig, deepspeed_init

    config = HfTrainerDeepSpeedConfig({"zero_optimization": {"stage": stage}})
    plugin = SimpleNamespace(hf_ds_config=config)
    trainer = SimpleNamespace(
        model=None,
        args=TrainingArguments(str(tmp_path), use_cpu=True, report_to="none"),
        accelerator=SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=plugin)),
    )
    if refused:
        with pytest.raises(ValueError, match="ZeRO inference only makes sense"):
            deepspeed_init(trainer, num_training_steps=0, inference=True)
    else:
        assert deepspeed_init(trainer, num_training_steps=0, inference=True) == (None, None)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    from torch import distributed

    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1
    )
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("reentrant", [True, False])
def test_an_adapter_of_adalora_is_ready_twice(reentrant: bool) -> None:
    """adalora-recomputed-by-reentrance"""
    from peft import AdaLoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    base = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
        )
    )
    config = AdaLoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], total_step=10)
    model = get_peft_model(base, config)
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.train()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    words = torch.zeros(1, 4, dtype=torch.long)
    loss = parallel(input_ids=words, labels=words).loss
    if reentrant:
        with pytest.raises(RuntimeError, match="mark a variable ready only once"):
            loss.backward()
    else:
        loss.backward()


@shell
def test_each_node_draws_its_own_word(tmp_path: Path) -> None:
    """meeting-of-another-name"""
    words = set()
    for node in range(3):
        folder = tmp_path / str(node)
        folder.mkdir()
        (told,) = run_with("torchrun", script("meeting-of-another-name"), folder)
        words.add(told[0].split("--rdzv_id ")[1].split()[0])
    assert len(words) > 1


@shell
def test_each_node_says_its_own_name(tmp_path: Path) -> None:
    """meeting-of-another-name: what srun is given still holds the command"""
    line = script("meeting-of-another-name", 1).splitlines()[-1]
    (tmp_path / "srun").write_text(f'#!/bin/bash\necho "$*" > {tmp_path}/given\n', "utf-8")
    (tmp_path / "srun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["/bin/bash", "-c", line], env=environment, check=True)
    assert "$(hostname)" in (tmp_path / "given").read_text("utf-8")


@pytest.mark.parametrize("kind", ["bad", "good"])
def test_a_node_without_ssh_is_told_its_number(kind: str) -> None:
    """node-rank-missing"""
    from deepspeed.launcher import runner

    words = shlex.split(script("node-rank-missing", kind=kind).replace("$NODE_RANK", "1"))[1:]
    hosts = {"worker-0": 8, "worker-1": 8}
    device = MagicMock(device_count=lambda: 8, visible_devices_envs=lambda: ["NOT_SET_HERE"])
    with (
        patch.object(runner, "get_accelerator", lambda: device),
        patch.object(runner.subprocess, "Popen", lambda *_, **__: MagicMock(returncode=0)),
        patch.object(runner, "fetch_hostfile", lambda _: hosts),
    ):
        if kind == "good":
            runner.main(words)
            return
        with pytest.raises(AssertionError, match="--node_rank is not set correctly"):
            runner.main(words)


@pytest.mark.parametrize("section", ["optimizer", "scheduler"])
def test_accelerate_takes_one_optimizer(section: str) -> None:
    """optimizer-made-by-script"""
    from accelerate import Accelerator

    weight = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(weight.parameters())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    plugin = MagicMock(
        is_auto=lambda _: False,
        deepspeed_config={
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            section: {"type": "AdamW"},
        },
    )
    accelerator = MagicMock(deepspeed_plugin=plugin, num_processes=1)
    refused = pytest.raises(ValueError, match=f"You cannot specify an? {section} in the config")
    with patch("accelerate.accelerator.logger"), refused:
        Accelerator._prepare_deepspeed(accelerator, weight, optimizer, schedule)
