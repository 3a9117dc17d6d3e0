"""What reading costs against the size of what is read: seconds of a processor, and the exponent.

    python benchmarks/readers.py [--most 16000] [--only launches]

Each reader is given texts of four sizes; the exponent is the slope of the logarithms over the
larger three, so that what every call costs does not count. 1 is linear, 2 quadratic.
"""

import argparse
import gc
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from math import log
from pathlib import Path
from typing import Final

from tunec.compiler.cli.main import run
from tunec.targets.registry import REGISTRY

SMALLEST: Final = 250
STEP: Final = 4
SPEC: Final = """\
tunec: 1
model: llama-3.2-1b
method: lora
data: {train: train.jsonl, samples: 10000, sequence: 1024}
hardware: a100-80g-x8
batch: {global: 64}
train: {epochs: 1}
"""
Text = Callable[[int], str]


def _keys(count: int) -> str:
    return "output_dir: out\n" + "\n".join(f"unknown_{n}: {n}" for n in range(count))


def _doubled(count: int) -> str:
    return "{" + ", ".join('"zero_optimization": {"stage": 2}' for _ in range(count)) + "}"


def _launches(count: int) -> str:
    lines = (f"deepspeed --num_gpus 2 train{n}.py --output_dir out{n}" for n in range(count))
    return "\n".join(lines)


def _assignments(count: int) -> str:
    lines = (f"A{n}=$A{n - 1}" for n in range(1, count))
    return "\n".join(("A0=8", *lines, f"python train.py --seed $A{count - 1}"))


def _hosts(count: int) -> str:
    return "\n".join(f"worker-{n} slots=8" for n in range(count))


def _fields(count: int) -> str:
    return SPEC + "\n".join(f"unknown_{n}: {n}" for n in range(count))


def _extra(count: int) -> str:
    return SPEC + "extra:\n  huggingface:\n" + "".join(f"    k{n}: {n}\n" for n in range(count))


def _allowed(count: int) -> str:
    return SPEC + "allow:\n" + "".join(f"  no-such-rule-{n}: agreed\n" for n in range(count))


def _rules(count: int) -> str:
    rule = "  - {{name: rule-{n}, because: agreed, require: {{batch.global: {{from: 0}}}}}}\n"
    return "policy: 1\nrules:\n" + "".join(rule.format(n=n) for n in range(count))


DIALECTS: Final = {
    "axolotl": "base_model: a/b\nmicro_batch_size: 1\nsequence_len: 512\ndatasets: []\n",
    "llamafactory": "stage: sft\ndo_train: true\nfinetuning_type: lora\ntemplate: llama3\n",
    "accelerate": "compute_environment: LOCAL_MACHINE\nnum_processes: 2\n",
    "trl": "model_name_or_path: a/b\ndataset_name: c\nmax_length: 512\noutput_dir: out\n",
}
"""The beginning of a file in each dialect."""


def _dialect(name: str) -> Text:
    return lambda count: DIALECTS[name] + "".join(f"unknown_{n}: {n}\n" for n in range(count))


def _adapter(count: int) -> str:
    keys = "".join(f', "unknown_{n}": {n}' for n in range(count))
    return f'{{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"]{keys}}}'


def _flags(count: int) -> str:
    words = " ".join(f"--unknown_{n} {n}" for n in range(count))
    return f"torchrun train.py --output_dir out --per_device_train_batch_size 1 {words}\n"


def _python(count: int) -> str:
    lines = (f"A{n} = A{n - 1}" for n in range(1, count))
    last = f"TrainingArguments('out', seed=A{count - 1})"
    return "\n".join(("from transformers import TrainingArguments", "A0 = 8", *lines, last))


def _settings(count: int) -> str:
    return "exclude = [" + ", ".join(f'"old-{n}/**"' for n in range(count)) + "]\n"


def _samples(count: int) -> str:
    return "".join(f'{{"text": "a sample of {n}"}}\n' for n in range(count))


def _log(count: int) -> str:
    bar = "".join(
        f"{n}/{count} [{n // 60:02}:{n % 60:02}<00:01,  1.00s/it]\r" for n in range(count)
    )
    return bar + "".join(f"{{'loss': {n}, 'epoch': 0.1}}\n" for n in range(count))


def _lint(name: str) -> tuple[str, str, Text, tuple[str, ...]]:
    return (
        f"keys of {name}, a diagnostic each",
        "a.yaml",
        _dialect(name),
        ("lint", "a.yaml", "--from", name),
    )


READERS: Final[tuple[tuple[str, str, Text, tuple[str, ...]], ...]] = (
    ("keys of YAML, a diagnostic each", "args.yaml", _keys, ("lint", "args.yaml")),
    ("keys of JSON in one line, each twice", "ds.json", _doubled, ("lint", "ds.json")),
    ("launches of a script", "train.sh", _launches, ("lint", "train.sh")),
    ("launches of a script", "train.sh", _launches, ("translate", "train.sh", "--to", "launch")),
    ("assignments of a script", "train.sh", _assignments, ("lint", "train.sh")),
    ("lines of a hostfile", "hostfile", _hosts, ("lint", "hostfile")),
    ("unknown fields of a spec", "spec.yaml", _fields, ("plan", "spec.yaml")),
    ("keys of `extra`", "spec.yaml", _extra, ("plan", "spec.yaml")),
    ("unknown entries of `allow`", "spec.yaml", _allowed, ("plan", "spec.yaml")),
    *map(_lint, DIALECTS),
    (
        "keys of an adapter's config",
        "adapter_config.json",
        _adapter,
        ("lint", "adapter_config.json"),
    ),
    ("flags of one launch", "train.sh", _flags, ("lint", "train.sh")),
    ("assignments of a Python script", "train.py", _python, ("lint", "train.py")),
    (
        "paths of tunec.toml",
        "tunec.toml",
        _settings,
        ("lint", "sound.yaml", "--config", "tunec.toml"),
    ),
    ("samples of data", "train.jsonl", _samples, ("data", "train.jsonl", "--estimate")),
    ("lines of a log", "train.log", _log, ("calibrate", "sound.yaml", "train.log", "--dry-run")),
    ("rules of a policy", "p.yaml", _rules, ("plan", "sound.yaml", "--policy", "p.yaml")),
)


def seconds(words: tuple[str, ...]) -> float:
    """Processor time of one call."""
    gc.collect()
    nowhere = io.StringIO()
    with redirect_stdout(nowhere), redirect_stderr(nowhere):
        start = time.process_time()
        run(words, REGISTRY, "0")
        return time.process_time() - start


def sizes(most: int) -> Iterator[int]:
    """The sizes of the texts, from the smallest in steps up to `most`."""
    size = SMALLEST
    while size <= most:
        yield size
        size *= STEP


def main() -> None:
    """Print a line of a table for each reader."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=16_000)
    parser.add_argument("--only", default="", help="a word of what is read")
    options = parser.parse_args()
    every = list(sizes(options.most))
    print(f"| what | command | {' | '.join(f'{size:,}' for size in every)} | exponent |")
    print("| --- " * (len(every) + 3) + "|")
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path("sound.yaml").write_text(SPEC, "utf-8")
        for what, name, text, words in (each for each in READERS if options.only in each[0]):
            taken = []
            for size in (2, *every):
                Path(name).write_text(text(size), "utf-8")
                taken.append(seconds(words))
            shown = " | ".join(f"{each:.2f}" for each in taken[1:])
            print(
                f"| {what} | `{words[0]}` | {shown} | {_exponent(every, taken[1:]):.2f} |",
                flush=True,
            )


def _exponent(every: list[int], taken: list[float]) -> float:
    first = 1 if len(every) > 2 else 0
    return log(taken[-1] / taken[first]) / log(every[-1] / every[first])


if __name__ == "__main__":
    main()
