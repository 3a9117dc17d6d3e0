"""What musubi-tuner's own functions refuse or pass over, where lint says so; and what they take."""

import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.version import Version

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from listed_refusals import Answers, answers  # noqa: E402
from programs import example  # noqa: E402
from test_scripts import asked  # noqa: E402
from tests.lints.refusals import Refusal, refusals  # noqa: E402

from tunec.compiler.read import found_plain, read  # noqa: E402
from tunec.targets.musubi_tuner.target import TARGET  # noqa: E402
from tunec.targets.musubi_tuner.verify import REQUIREMENTS, SCRIPT, question  # noqa: E402

CASES: Final = [each for each in refusals() if each.is_asked and each.program == "musubi-tuner"]
DATA: Final = '[[datasets]]\nimage_directory = "img"\nresolution = 1024\n'


@cache
def verdicts() -> Mapping[str, Answers]:
    """Of each case the answers about its bad and its mended form."""
    return answers(CASES, question, REQUIREMENTS, SCRIPT)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_flags_are_refused_before_training(case: Refusal) -> None:
    """musubi-tuner-flags-refused, value-refused-by-musubi-tuner, data-refused-by-musubi-tuner"""
    refused, taken = verdicts()[case.id]
    assert case.says in str(refused["refused"])
    assert case.says not in str(taken["refused"])


def told(text: str) -> Mapping[str, Any]:
    (answer,) = asked(REQUIREMENTS, SCRIPT, [question("qwen_image_train_network", (), text, DATA)])
    found: Mapping[str, Any] = answer
    return found


def test_a_config_holds_what_nobody_asks_for() -> None:
    """key-unread-by-musubi-tuner: the parser keeps a key of a config."""
    bad = example("key-unread-by-musubi-tuner", "bad", 0).files["lora.toml"]
    kept = told(bad.replace('dataset_config = "data.toml"\n', ""))
    assert kept["refused"] is None
    assert kept["values"]["gradient_checkpoint"] is True
    assert kept["values"]["gradient_checkpointing"] is False


ALIKE: Final = {
    "batch.accumulation": "gradient_accumulation_steps",
    "optimizer.learning_rate": "learning_rate",
    "optimizer.max_grad_norm": "max_grad_norm",
    "schedule.kind": "lr_scheduler",
    "schedule.epochs": "max_train_epochs",
    "runtime.dataloader_workers": "max_data_loader_n_workers",
    "runtime.output": "output_dir",
    "adapter.rank": "network_dim",
    "adapter.alpha": "network_alpha",
    "precision.compute": "mixed_precision",
}
"""Slots whose values the program has under a name of its own."""


@pytest.mark.parametrize("more", ["", "max_grad_norm = 0.5\nlr_scheduler = 'cosine'\n"])
def test_slots_are_what_the_program_resolves(more: str) -> None:
    """Defaults too: what a config leaves out is read as the parser fills it in."""
    good = example("musubi-tuner-flags-refused", "good", 0).files["lora.toml"]
    lines = [
        line
        for line in good.splitlines(keepends=True)
        if not line.startswith(("dataset_config", "lr_"))
    ]
    text = "".join(lines) + more
    values = told(text)["values"]
    documents = {"musubi-tuner.toml": found_plain(tomllib.loads(text))}
    known = read(TARGET, documents, Version(TARGET.latest))
    slots = {each.slot: each.value for each in sorted(known, key=lambda each: each.rank)}
    assert {slot: slots[slot] for slot in ALIKE} == {s: values[key] for s, key in ALIKE.items()}
    assert slots["model.path"] == "Qwen/Qwen-Image"
