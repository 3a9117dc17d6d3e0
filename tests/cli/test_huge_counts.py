"""Numbers of processes, devices and samples cost nothing by being large: no rank is enumerated."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.small_spec import SPEC

LIMIT = 1 << 30
"""Bytes of address space; a list of a hundred million ranks would not fit."""
COMMANDS = (
    "plan spec.yaml --hardware a100-80g-x999-n99999",
    "plan spec.yaml --hardware a100-80g-x8-n99999 --set method=full",
    "plan spec.yaml --hardware a100-80g-x8-n99999 --set method=full --set batch.global=65537",
    "plan spec.yaml --set pin.parallel.world=99999999999",
    "plan spec.yaml --set pin.parallel.data=99999999999",
    "plan spec.yaml --set pin.batch.micro=566686911",
    "lint run.sh",
    "lint run.sh --hardware a100-80g-x8 --model llama-3.2-1b",
    "lint args.yaml --world-size 99999999999 --hardware a100-80g-x8-n99999",
    "translate run.sh --to slurm --to huggingface",
    "translate args.yaml --world-size 9999999 --to spec --hardware a100-80g-x8-n99999",
)


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_huge_count_is_answered_within_little_memory(command: str, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC, "utf-8")
    (tmp_path / "run.sh").write_text(
        "deepspeed --num_gpus 99999999999 train.py --deepspeed ds.json --output_dir o "
        "--per_device_train_batch_size 4 --learning_rate 1e-5 --bf16 True\n",
        "utf-8",
    )
    (tmp_path / "args.yaml").write_text(
        "model_name_or_path: meta-llama/Llama-3.2-1B\noutput_dir: o\ndataset_name: x/y\n"
        "per_device_train_batch_size: 4\nlearning_rate: 1.0e-5\nbf16: true\nmax_length: 512\n"
        "deepspeed: ds.json\n",
        "utf-8",
    )
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}', "utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tunec", *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
