"""What rules say of the words of launchers, asked of the launchers' own parsers and readers."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from apart import apart  # noqa: E402
from programs import example  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate", "trl"):
    pytest.importorskip(needed)


def words(rule: str, kind: str = "bad") -> list[str]:
    """The words of the first script of a rule's example."""
    files = example(rule, kind, 0).files
    return next(text for name, text in files.items() if name.endswith(".sh")).split()


def test_torchrun_has_no_flag_of_its_forerunner(capsys) -> None:
    from torch.distributed.run import parse_args

    with pytest.raises(SystemExit):
        parse_args(words("launcher-flag-unknown")[1:])
    assert "unrecognized arguments: --use_env" in capsys.readouterr().err
    assert parse_args(words("launcher-flag-unknown", "good")[1:]).nproc_per_node == "4"


def test_deepspeed_has_its_flags_with_one_sign(capsys) -> None:
    from deepspeed.launcher.runner import parse_args

    with pytest.raises(SystemExit):
        parse_args(["--num-gpus", "4", "train.py"])
    assert "unrecognized arguments: --num-gpus" in capsys.readouterr().err


def test_torchrun_takes_few_words() -> None:
    from torch.distributed.elastic.multiprocessing.api import Std
    from torch.distributed.elastic.rendezvous.utils import _parse_rendezvous_config
    from torch.distributed.run import config_from_args, determine_local_world_size, parse_args

    with pytest.raises(ValueError, match="Unsupported nproc_per_node value"):
        determine_local_world_size("all")
    with pytest.raises(ValueError, match="rendezvous configuration"):
        _parse_rendezvous_config("timeout:900")
    with pytest.raises(ValueError, match="does not match"):
        Std.from_str("4")
    reversed_nodes = ["--nnodes", "4:2", "--rdzv_backend", "c10d", "--nproc_per_node", "1", "a.py"]
    with pytest.raises(AssertionError):
        config_from_args(parse_args(reversed_nodes))


def test_mpi_takes_every_slot() -> None:
    from deepspeed.launcher.multinode_runner import MPICHRunner, OpenMPIRunner
    from deepspeed.launcher.runner import parse_args

    args = parse_args(["--launcher", "openmpi", "--include", "a:0@b:0", "train.py"])
    for runner in (OpenMPIRunner, MPICHRunner):
        with pytest.raises(ValueError, match="does not support worker include"):
            runner(args, "", {"a": 8, "b": 8})


def test_the_first_word_is_the_script() -> None:
    from deepspeed.launcher.runner import parse_args

    held = parse_args(words("word-taken-for-script")[1:])
    assert held.user_script == "./hostfile"
    assert held.user_args[0] == "train.py"
    assert parse_args(words("word-taken-for-script", "good")[1:]).user_script == "train.py"


@pytest.mark.parametrize(
    ("said", "seen"),
    [("cuda:0,cuda:1", []), ("0-3", [0]), ("0,1", [0, 1]), ("all", [])],
)
def test_cuda_reads_numbers(said: str, seen: list[int], monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
    assert torch.cuda._parse_visible_devices() == seen


def test_accelerate_has_no_flags_without_a_command(capsys, monkeypatch) -> None:
    from accelerate.commands.accelerate_cli import main

    monkeypatch.setattr(sys, "argv", words("launch-left-out"))
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err


def test_a_configuration_of_deepspeed_is_none_of_accelerate(tmp_path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    file = tmp_path / "ds.json"
    file.write_text(example("file-of-another-reader", "bad", 0).files["ds.json"], "utf-8")
    assert json.loads(file.read_text("utf-8"))
    with pytest.raises(ValueError, match="must be specified in the config file"):
        load_config_from_file(str(file))


@pytest.mark.parametrize(("kind", "is_taken"), [("bad", False), ("good", True)])
def test_fsdp_has_few_ways_to_fetch_ahead(kind: str, is_taken: bool) -> None:
    """In another process: the plugin writes the environment."""
    said = yaml.safe_load(example("fsdp-prefetch-refused", kind, 0).files["args.yaml"])
    word = said["fsdp_config"]["backward_prefetch"].upper()

    def plugin() -> str:
        from accelerate import FullyShardedDataParallelPlugin

        return str(FullyShardedDataParallelPlugin(backward_prefetch=word).backward_prefetch)

    told = apart(plugin)
    assert (told == f"BackwardPrefetch.{word}") is is_taken, told


def test_fsdp_2_asks_for_a_newer_torch(monkeypatch) -> None:
    from accelerate.utils import dataclasses

    monkeypatch.setattr(dataclasses, "is_torch_version", lambda _sign, than: than != "2.6.0")
    with pytest.raises(ImportError, match=r"FSDP2 requires PyTorch >= 2\.6\.0"):
        dataclasses.FullyShardedDataParallelPlugin(fsdp_version=2)


@pytest.mark.skipif(shutil.which("bash") is None, reason="not checked: there is no bash")
@pytest.mark.parametrize(("kind", "seen"), [("bad", ""), ("good", "2,3")])
def test_a_variable_is_given_when_a_program_is_started(
    kind: str, seen: str, tmp_path: Path
) -> None:
    program = tmp_path / "torchrun"
    program.write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES"\n', encoding="utf-8")
    program.chmod(0o755)
    text = next(iter(example("variable-set-too-late", kind, 0).files.values()))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    run = subprocess.run(
        ["bash", "-c", text], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == seen


def trainers() -> ModuleType:
    spec = importlib.util.find_spec("transformers.trainer")
    assert spec is not None
    return importlib.import_module("transformers.trainer")


def test_a_shared_context_is_attended_to_by_torch() -> None:
    from types import SimpleNamespace

    shared = SimpleNamespace(cp_enabled=True, cp_backend="torch")
    trainer = SimpleNamespace(accelerator=SimpleNamespace(parallelism_config=shared))
    model = SimpleNamespace(config=SimpleNamespace(_attn_implementation="flash_attention_2"))
    prepare = trainers().Trainer._prepare_context_parallel_inputs
    with pytest.raises(ValueError, match="supported only with SDPA attention"):
        prepare(trainer, model, {})


def test_tokens_of_trl_s_script_are_its_fields() -> None:
    from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser

    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    with pytest.raises(ValueError, match="peft_lora_r"):
        parser.parse_args_and_config(
            [
                *("--dataset_name", "a", "--output_dir", "o", "--peft_lora_r", "8"),
                *("--bf16", "false", "--use_cpu", "true"),
            ]
        )
