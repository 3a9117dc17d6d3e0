"""A program beside its command says what its flags come to: each case has a twin that is told."""

from pathlib import Path

import pytest
from lint_asking import lint

_COMMAND = (
    "export CUDA_VISIBLE_DEVICES=0,1\n"
    "python tools/train.py --output_dir out --bf16 true --learning_rate 1e-5 --num_train_epochs 1"
    " --model_name_or_path a/b --per_device_train_batch_size 1 --logging_steps 5\n"
)
_OF_TRAINER = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "args = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
)
_OF_ITS_OWN = "import argparse\nargs = argparse.ArgumentParser().parse_args()\n"
_TRIED = """from trl import DPOConfig, DPOTrainer
args = DPOConfig(output_dir="out")
{0}
"""
_OLD = "DPOTrainer(model, args=args, tokenizer=t)"


@pytest.mark.parametrize(
    ("program", "is_told"),
    [
        (_OF_TRAINER, True),
        (_OF_TRAINER + "model.model_parallel = True\n", False),
        (_OF_ITS_OWN, False),
    ],
)
def test_devices_of_a_process_are_the_programs_own_matter(
    program: str, is_told: bool, tmp_path: Path
) -> None:
    texts = {"train.sh": _COMMAND, "tools/train.py": program}
    found = lint(tmp_path, texts, ["."]).names
    assert ("several-devices-in-one-process" in found) == is_told


@pytest.mark.parametrize(
    ("call", "is_told"),
    [
        (_OLD, True),
        (f"try:\n    {_OLD}\nexcept TypeError:\n    pass", False),
    ],
)
def test_what_a_script_tries_first_is_not_told(call: str, is_told: bool, tmp_path: Path) -> None:
    texts = {"train.py": _TRIED.format(call), "requirements.txt": "trl==0.29.0\n"}
    found = lint(tmp_path, texts, ["."]).names
    assert ("trainer-argument-moved" in found) == is_told
