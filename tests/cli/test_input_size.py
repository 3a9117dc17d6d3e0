"""What reading costs grows with the size of what is read, and no faster: calls are counted."""

import sys
from pathlib import Path

import pytest
from tests.cli.shell import FIVE

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
