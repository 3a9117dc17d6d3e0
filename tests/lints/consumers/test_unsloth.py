"""What the sections of Unsloth's file take is what their classes take."""

import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import FOLDER  # noqa: E402
from test_scripts import asked  # noqa: E402
from tests.lints.lint_asking import lint  # noqa: E402

from tunec.compiler.consumers.sets import choose  # noqa: E402

KEYS: Final = (
    *("training.max_seq_length", "training.learning_rate", "training.packing"),
    *("training.output_dir", "training.training_type", "training.gradient_checkpointing"),
    *("data.dataset", "data.local_dataset", "data.format_type"),
    *("lora.lora_r", "lora.lora_dropout", "lora.use_rslora", "lora.target_modules"),
    *("logging.enable_wandb", "logging.wandb_token", "training.no_such_key"),
)
VALUES: Final = (
    *(True, False, 0, 1, 2, -1, 0.0, 2.0, 2.5, "2", "2.0", "2.5", "1e3", "2e-4", "0x10"),
    *("yes", "Off", "lora", " LoRA ", "unsloth", "TRUE", "raw", "word", ""),
    *(None, [], ["a"], [1], {}),
)
BASE: Final = {
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "data": {"format_type": "auto"},
    "training": {"max_steps": 10, "load_in_4bit": True},
    "lora": {"lora_alpha": 16},
    "logging": {"tensorboard_dir": "runs"},
}
RULES: Final = {"key-outside-its-section", "section-value-refused"}


def written(key: str, value: Any) -> str:
    section, _, name = key.rpartition(".")
    return yaml.safe_dump({**BASE, section: {**BASE[section], name: value}})


@pytest.mark.parametrize("release", ["2026.9.8", "2026.10.9"])
def test_a_section_takes_what_its_class_takes(release: str, tmp_path: Path) -> None:
    pairs = [[key, value] for key in KEYS for value in VALUES]
    question = {"verb": "takes", "pairs": pairs}
    pins = choose("unsloth", release).requirements
    (taken,) = asked(pins, "lints.consumers.unsloth_runs", [question], FOLDER)
    assert {True, False} == {*taken}
    arguments = ("train.yaml", "--software", f"unsloth={release}")
    found = [
        not RULES & {*lint(tmp_path, {"train.yaml": written(*pair)}, arguments).names}
        for pair in pairs
    ]
    each = zip(pairs, taken, found, strict=True)
    differ = [(*pair, is_taken) for pair, is_taken, said in each if is_taken != said]
    assert differ == []
