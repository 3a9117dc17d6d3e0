"""What rules say of shells, launchers and torch itself: each is asked in this process."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from apart import apart  # noqa: E402
from programs import example  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate"):
    pytest.importorskip(needed)

SHELL = shutil.which("bash")
shell = pytest.mark.skipif(SHELL is None, reason="not checked: there is no bash")


def script(rule: str, number: int = 0, kind: str = "bad") -> str:
    """The script of a rule's example."""
    return next(
        text for name, text in example(rule, kind, number).files.items() if name.endswith(".sh")
    )


def run_with(launcher: str, text: str, folder: Path) -> list[list[str]]:
    """Run a script whose launcher only says what it was given, and in which environment."""
    told = folder / "told"
    (folder / launcher).write_text(
        f'#!/bin/bash\n{{ echo "$*"; env; }} > {told}.$$\n', encoding="utf-8"
    )
    (folder / launcher).chmod(0o755)
    file = folder / "train.sh"
    file.write_text(text, encoding="utf-8")
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    subprocess.run([str(SHELL), str(file)], env=environment, capture_output=True, check=False)
    return [each.read_text("utf-8").splitlines() for each in sorted(folder.glob("told.*"))]


@shell
@pytest.mark.parametrize(("number", "launcher"), [(0, "torchrun"), (1, "accelerate")])
def test_a_command_ends_where_no_line_continues_it(
    number: int, launcher: str, tmp_path: Path
) -> None:
    (told,) = run_with(launcher, script("command-cut-short", number), tmp_path)
    assert "--output_dir" in told[0]
    assert "--max_steps" not in told[0]


@shell
def test_a_variable_is_not_exported_by_itself(tmp_path: Path) -> None:
    (told,) = run_with("torchrun", script("variable-not-exported"), tmp_path)
    assert not any(line.startswith("NCCL_DEBUG=") for line in told)


@shell
@pytest.mark.parametrize("number", [0, 1])
def test_an_exported_variable_is_there(number: int, tmp_path: Path) -> None:
    (told,) = run_with("torchrun", script("variable-not-exported", number, "good"), tmp_path)
    assert "NCCL_DEBUG=INFO" in told


def test_what_stands_behind_the_script_is_the_script_s() -> None:
    from torch.distributed.run import parse_args

    words = script("launcher-flags-behind-script").split()[1:]
    held = parse_args(words)
    assert held.nproc_per_node == "1"
    assert held.training_script_args == ["--nproc_per_node", "8"]


def test_accelerate_takes_one_engine() -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    words = script("launch-engines-exclude").split()[2:]
    with pytest.raises(ValueError, match="You can only use one of"):
        _validate_launch_command(launch_command_parser().parse_args(words))


@pytest.mark.parametrize("number", range(3))
def test_a_launcher_refuses_the_flags_of_another(number: int, capsys) -> None:
    from accelerate.commands.launch import launch_command_parser
    from deepspeed.launcher.runner import parse_args as deepspeed
    from torch.distributed.run import parse_args as torchrun

    parsers = (torchrun, deepspeed, launch_command_parser().parse_args)
    words = script("launcher-flag-of-another", number).split()
    first = next(at for at, word in enumerate(words) if word.startswith("--"))
    with pytest.raises(SystemExit):
        parsers[number](words[first:])
    assert f"unrecognized arguments: {words[first]}" in capsys.readouterr().err


def test_accelerate_computes_no_fp16_on_a_cpu() -> None:
    """In another process: the state of an Accelerator is the process's own."""

    def made(precision: str) -> list[str]:
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True, mixed_precision=precision)
        return [str(accelerator.native_amp), str(accelerator.scaler)]

    assert apart(made, "fp16") == ["False", "None"]
    assert apart(made, "bf16") == ["True", "None"]


def test_argparse_keeps_the_last_value() -> None:
    words = script("flag-given-twice").split()
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float)
    assert parser.parse_known_args(words)[0].learning_rate == 2e-5


@pytest.mark.parametrize(("number", "text"), [(0, "not found in hostfile"), (1, "invalid literal")])
def test_the_form_of_a_device_filter(number: int, text: str) -> None:
    from deepspeed.launcher.runner import parse_resource_filter

    words = script("device-filter-refused", number).split()
    with pytest.raises(ValueError, match=text):
        parse_resource_filter({"localhost": list(range(8))}, words[words.index("--include") + 1])


@pytest.mark.parametrize("number", [0, 1])
def test_the_launcher_refuses_the_hostfile(number: int) -> None:
    from deepspeed.launcher.runner import _parse_hostfile

    files = example("hostfile-refused", "bad", number).files
    with pytest.raises(ValueError, match="Hostfile contains"):
        _parse_hostfile(files["hostfile"].splitlines())
    good = example("hostfile-refused", "good", 0).files["hostfile"]
    assert _parse_hostfile(good.splitlines()) == {"worker-0": 8, "worker-1": 8}


def test_a_count_of_devices_takes_the_place_of_slots() -> None:
    from deepspeed.launcher.runner import _parse_hostfile, apply_num_nodes_and_gpus

    files = example("more-processes-than-slots", "bad", 0).files
    slots = _parse_hostfile(files["hostfile"].splitlines())
    told = apply_num_nodes_and_gpus({each: list(range(n)) for each, n in slots.items()}, 4, 16)
    assert {host: len(devices) for host, devices in told.items()} == dict.fromkeys(slots, 16)


def test_a_world_without_a_rank_is_one_process() -> None:
    def counted() -> int:
        from accelerate import PartialState

        os.environ["WORLD_SIZE"] = "4"
        return int(PartialState().num_processes)

    assert apart(counted) == 1


def test_without_a_hostfile_there_is_one_node(tmp_path: Path) -> None:
    from deepspeed.launcher.runner import fetch_hostfile

    assert fetch_hostfile(str(tmp_path / "hostfile")) is None


def test_a_device_that_is_listed_twice_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,0")
    assert torch.cuda._parse_visible_devices() == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert torch.cuda._parse_visible_devices() == [0, 1]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_allocator_refuses_the_setting(number: int) -> None:
    line = script("allocator-setting-refused", number).splitlines()[0]
    with pytest.raises((RuntimeError, ValueError)):
        torch._C._accelerator_setAllocatorSettings(line.split("=", 1)[1])


def test_torch_refuses_another_option_of_checkpointing() -> None:
    from torch.utils.checkpoint import checkpoint

    held = example("checkpointing-option-refused", "bad", 0).files["training_args.yaml"]
    options = yaml.safe_load(held)["gradient_checkpointing_kwargs"]
    with pytest.raises(ValueError, match="Unexpected keyword arguments: reentrant"):
        checkpoint(torch.nn.Linear(2, 2), torch.ones(1, 2), use_reentrant=True, **options)


def test_the_mesh_has_to_be_of_all_processes() -> None:
    from accelerate.parallelism_config import ParallelismConfig

    held = yaml.safe_load(
        example("widths-do-not-make-processes", "bad", 0).files["accelerate.yaml"]
    )
    sizes = {
        key.removeprefix("parallelism_config_"): value
        for key, value in held["parallelism_config"].items()
    }
    surroundings = SimpleNamespace(
        num_processes=held["num_processes"], multi_device=True, is_fsdp2=True
    )
    with pytest.raises(ValueError, match="does not match num_processes"):
        ParallelismConfig(**sizes)._validate_accelerator(surroundings)


@pytest.mark.parametrize("number", [0, 1])
def test_warm_up_sets_the_rate_itself(number: int) -> None:
    from deepspeed.runtime.lr_schedules import WarmupDecayLR, WarmupLR

    files = example("scheduler-rate-beats-optimizer", "bad", number).files
    config = json.loads(files["ds_config.json"])
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([weight], **config["optimizer"]["params"])
    kind = {"WarmupLR": WarmupLR, "WarmupDecayLR": WarmupDecayLR}[config["scheduler"]["type"]]
    scheduler = kind(optimizer, **config["scheduler"]["params"])
    for _ in range(101):
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-3, rel=1e-2)


# ── sbatch, with a controller of its own ─────────────────────────────────────────────────────────

cluster = pytest.mark.skipif(
    not all(shutil.which(name) for name in ("sbatch", "slurmctld")),
    reason="not checked: there is no Slurm",
)


def submitted(rule: str, number: int = 0) -> dict[str, str]:
    """The options that sbatch finds in a script."""
    from tunec.targets.slurm.consumer.sbatch import submit

    nodes = {"nodes": 2, "gpus": 8, "cpus": 64, "memory": 100_000}
    answer = submit({"text": script(rule, number), **nodes})
    assert answer["refused"] is None
    found: dict[str, str] = answer["values"]
    return found


@cluster
def test_an_option_behind_a_command_is_not_read() -> None:
    found = submitted("batch-directive-not-read")
    assert found["gres"].endswith("gpu:8")
    assert "time" not in found


@cluster
def test_a_variable_is_not_put_into_an_option() -> None:
    assert submitted("batch-directive-not-read", 1)["job_name"] == "$RUN_NAME"


@cluster
def test_a_job_has_no_device_that_it_does_not_ask_for() -> None:
    assert not [name for name in submitted("no-device-asked-for") if name.startswith("g")]
