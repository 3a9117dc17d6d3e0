"""What all seeds are made of: one sound call, and the texts that the repository already has."""

import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tunec.compiler.cli.main import run
from tunec.compiler.lints.index import rule_names
from tunec.targets.registry import REGISTRY, TARGETS

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/lints"))

from tests.lints.corpus import cases  # noqa: E402
from tests.lints.lint_pages import examples  # noqa: E402

SCRIPT = """\
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
from trl import SFTConfig

LR = 2e-4
ENGINE = {"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}
bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.1-8B", quantization_config=bits)
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj"]))


def arguments(long: bool) -> TrainingArguments:
    given = dict(bf16=True, gradient_checkpointing=True)
    if long:
        return SFTConfig("out", max_length=4096, deepspeed="ds_config.json", **given)
    return TrainingArguments("out", learning_rate=LR / 2, deepspeed=ENGINE, **given)


Trainer(model=model, args=arguments(False)).train()
"""


@dataclass(frozen=True, slots=True)
class Seed:
    """One sound call: files by name, and the words after `tunec`."""

    files: Mapping[str, str | bytes]
    words: tuple[str, ...]


def target(random: Random) -> str:
    """One of all targets, by name."""
    return random.choice(sorted(TARGETS))


@lru_cache
def specs() -> tuple[str, ...]:
    found = (path.read_text("utf-8") for path in sorted(ROOT.glob("examples/*/spec.yaml")))
    return tuple(each for each in found if "extends:" not in each)


@lru_cache
def runs_of_lint() -> tuple[tuple[Mapping[str, str], tuple[str, ...]], ...]:
    """The runs of the rules' pages and of the collected misconfigurations, with their flags."""
    pages = (each for name in rule_names() for each in examples(name))
    shown = ((each.files, each.arguments) for each in pages)
    collected = ((each.texts(), tuple(each.command(each.texts()))) for each in cases())
    return (*shown, *collected)


def written_by(files: Mapping[str, str], words: tuple[str, ...], name: str) -> str:
    """A file that a sound call writes."""
    with TemporaryDirectory() as folder, chdir(folder):
        for file, text in files.items():
            Path(file).write_text(text, "utf-8")
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            run(words, REGISTRY, "0")
        return Path(name).read_text("utf-8")
