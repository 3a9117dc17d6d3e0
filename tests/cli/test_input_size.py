"""What an input costs: it grows with its size and no faster, and large counts cost nothing."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.shell import FIVE
from tests.small_spec import SPEC

FEW, MANY = 40, 160
ALLOWED = 1.25


def flags(count):
    lines = (f"deepspeed --num_gpus 2 train{n}.py --output_dir out{n}" for n in range(count))
    return "\n".join(lines)


def hosts(count):
    return "deepspeed --hostfile hosts train.py --output_dir out\n" * count


def unknown_keys(count):
    known = '"train_batch_size": 8, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}'
    return "{" + known + "".join(f', "unknown_{n}": {n}' for n in range(count)) + "}"


def doubled_keys(count):
    return "output_dir: out\n" + "\n".join(f"seed: {n}" for n in range(count))


def doubled_in_one_line(count):
    return "{" + ", ".join('"zero_optimization": {"stage": 2}' for _ in range(count)) + "}"


def chained(count):
    lines = (f"A{n}=$A{n - 1}" for n in range(1, count))
    return "\n".join(("A0=8", *lines, f"python train.py --seed $A{count - 1}"))


def fields(count):
    own = Path(FIVE).read_text("utf-8").rstrip()
    return own + "\n" + "\n".join(f"unknown_{n}: {n}" for n in range(count))


def devices(count):
    lines = (f"worker-{n} slots=8" for n in range(count))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("command", "name", "text"),
    [
        ("lint", "ds_config.json", unknown_keys),
        ("lint", "args.yaml", doubled_keys),
        ("lint", "ds_config.json", doubled_in_one_line),
        ("lint", "train.sh", flags),
        ("lint", "train.sh", hosts),
        ("lint", "train.sh", chained),
        ("lint", "hostfile", devices),
        ("plan", "spec.yaml", fields),
        ("translate", "train.sh", flags),
    ],
)
def test_four_times_as_much_costs_four_times_as_much(command, name, text, tunec, tmp_path):
    file = tmp_path / name
    more = ("--to", "launch") if command == "translate" else ()

    def cost(count):
        file.write_text(text(count), "utf-8")
        return calls(lambda: tunec(command, file, *more))

    cost(2)  # what is loaded once
    none, few, many = cost(1), cost(FEW), cost(MANY)
    assert many - none <= ALLOWED * (few - none) * MANY / FEW, (none, few, many)


def calls(work):
    seen = 0

    def count(*_):
        nonlocal seen
        seen += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


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
