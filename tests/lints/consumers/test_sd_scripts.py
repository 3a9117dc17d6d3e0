"""What sd-scripts' own functions refuse or pass over, where lint says so; and what they take."""

import re
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
from tests.lints.lint_asking import lint  # noqa: E402
from tests.lints.refusals import Refusal, refusals  # noqa: E402
from tests.tables import table  # noqa: E402

from tunec.compiler.read import found_plain, read  # noqa: E402
from tunec.targets.sd_scripts.target import TARGET  # noqa: E402
from tunec.targets.sd_scripts.verify import REQUIREMENTS, SCRIPT, question  # noqa: E402

_BASE: Final = {
    "pretrained_model_name_or_path": '"models/sd_xl_base_1.0.safetensors"',
    "output_dir": '"out"',
    "output_name": '"dog"',
    "dataset_config": '"data.toml"',
    "network_module": '"networks.lora"',
    "network_dim": "16",
    "max_train_epochs": "10",
    "learning_rate": "1e-4",
    "mixed_precision": '"bf16"',
    "network_train_unet_only": "true",
}
_DATA: Final = """[general]
caption_extension = ".txt"

[[datasets]]
resolution = 1024
batch_size = 2

[[datasets.subsets]]
image_dir = "img"
num_repeats = 2
"""
_TRUE: Final = "true"

CASES: Final = [each for each in refusals() if each.is_asked and each.program == "sd-scripts"]
REFUSED: Final[Mapping[str, Any]] = table(__file__)["refused"]
DATA: Final[Mapping[str, tuple[str, str, str]]] = {
    "a key of nobody's": ("batch_size", "batchsize", "extra keys not allowed"),
    "a key of another level": ("num_repeats = 2", "resolution = 512", "extra keys not allowed"),
    "a text for a number": ("batch_size = 2", 'batch_size = "2"', "expected int"),
    "a folder without pictures": ('image_dir = "img"', 'class_tokens = "dog"', "required key"),
}


def config(change: Mapping[str, str]) -> str:
    return "".join(f"{key} = {value}\n" for key, value in {**_BASE, **change}.items())


def told(program: str, text: str, data: str = _DATA) -> Mapping[str, Any]:
    (answer,) = asked(REQUIREMENTS, SCRIPT, [question(program, (), text, data)])
    found: Mapping[str, Any] = answer
    return found


@cache
def verdicts() -> Mapping[str, Answers]:
    """Of each case the answers about its bad and its mended form."""
    texts = [
        (case.get("program", "train_network"), config(case[each]))
        for case in REFUSED.values()
        for each in ("flags", "mended")
    ]
    questions = [question(program, (), text, _DATA) for program, text in texts]
    found = iter(asked(REQUIREMENTS, SCRIPT, questions))
    return {name: (next(found), next(found)) for name in REFUSED}


def names(tmp_path: Path, text: str, data: str = _DATA) -> list[str]:
    files = {"lora.toml": text, "data.toml": data}
    found = lint(tmp_path, files, ("lora.toml", "data.toml")).findings
    return [each["id"] for each in found if each["severity"] == "error"]


@pytest.mark.parametrize("name", REFUSED)
def test_flags_are_refused_before_training(name: str, tmp_path: Path) -> None:
    """sd-scripts-flags-refused, value-refused-by-sd-scripts"""
    case = REFUSED[name]
    refused, taken = verdicts()[name]
    assert case["says"] in refused["refused"]
    assert taken["refused"] is None
    assert case["rule"] in names(tmp_path, config(case["flags"]))
    assert names(tmp_path, config(case["mended"])) == []


@cache
def judged() -> Mapping[str, Answers]:
    """Of each listed refusal the answers about its bad and its mended form."""
    return answers(CASES, question, REQUIREMENTS, SCRIPT)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_listed_refusals_are_those_of_the_program(case: Refusal) -> None:
    refused, taken = judged()[case.id]
    assert case.says in str(refused["refused"])
    assert case.says not in str(taken["refused"])


@pytest.mark.parametrize("name", DATA)
def test_the_data_s_own_file_is_refused(name: str, tmp_path: Path) -> None:
    """data-refused-by-sd-scripts"""
    old, new, says = DATA[name]
    assert old in _DATA
    data = _DATA.replace(old, new)
    assert says in str(told("train_network", config({}), data)["refused"])
    assert told("train_network", config({}))["refused"] is None
    assert "data-refused-by-sd-scripts" in names(tmp_path, config({}), data)
    assert names(tmp_path, config({})) == []


def test_a_config_holds_what_nobody_asks_for() -> None:
    """key-unread-by-sd-scripts: the parser refuses a flag, and keeps a key."""
    kept = told("train_network", config({"textencoder_lr": "5e-5"}))
    assert kept["refused"] is None
    assert kept["values"]["textencoder_lr"] == 5e-5
    assert kept["values"]["text_encoder_lr"] is None
    argv = ("--textencoder_lr", "5e-5")
    (refused,) = asked(REQUIREMENTS, SCRIPT, [question("train_network", argv, None, _DATA)])
    assert "unrecognized arguments: --textencoder_lr" in refused["refused"]


def test_a_later_section_holds() -> None:
    """key-in-two-sections"""
    text = config({}) + "[one]\nunet_lr = 1e-4\n[two]\nunet_lr = 5e-5\n"
    assert told("train_network", text)["values"]["unet_lr"] == 5e-5


@pytest.mark.parametrize("number", range(3))
def test_pages_of_configs_say_what_the_program_does(number: int) -> None:
    """The good example of each page is taken by the script."""
    rules = ("key-unread-by-sd-scripts", "value-refused-by-sd-scripts", "key-in-two-sections")
    text = next(iter(example(rules[number], "good", 0).files.values()))
    assert re.search(r"network_module", text)
    assert told("sdxl_train_network", text)["refused"] is None


ALIKE: Final = {
    "batch.micro": "train_batch_size",
    "batch.accumulation": "gradient_accumulation_steps",
    "optimizer.max_grad_norm": "max_grad_norm",
    "schedule.kind": "lr_scheduler",
    "schedule.epochs": "max_train_epochs",
    "runtime.dataloader_workers": "max_data_loader_n_workers",
    "adapter.rank": "network_dim",
    "model.path": "pretrained_model_name_or_path",
}
"""Slots whose values the program has under a name of its own."""
RESOLVED: Final = (
    {},
    {
        "train_batch_size": "4",
        "gradient_accumulation_steps": "2",
        "max_grad_norm": "0.5",
        "lr_scheduler": '"cosine"',
        "lr_warmup_steps": "0.1",
        "max_data_loader_n_workers": "2",
        "unet_lr": "5e-5",
        "network_dim": "8",
    },
)


@pytest.mark.parametrize("change", RESOLVED)
def test_slots_are_what_the_program_resolves(change: dict[str, str]) -> None:
    """Defaults too: what a config leaves out is read as the parser fills it in."""
    model = {"pretrained_model_name_or_path": '"stabilityai/stable-diffusion-xl-base-1.0"'}
    text = config({**model, **change}).replace('dataset_config = "data.toml"\n', "")
    values = told("train_network", text)["values"]
    documents = {"sd-scripts.toml": found_plain(tomllib.loads(text))}
    known = read(TARGET, documents, Version(TARGET.latest))
    slots = {each.slot: each.value for each in sorted(known, key=lambda each: each.rank)}
    assert {slot: slots[slot] for slot in ALIKE} == {s: values[key] for s, key in ALIKE.items()}
    rate = values["unet_lr"] if values["unet_lr"] is not None else values["learning_rate"]
    assert slots["optimizer.learning_rate"] == rate
    assert (slots["schedule.warmup_share"] if change else 0) == values["lr_warmup_steps"]
    assert slots["precision.compute"] == values["mixed_precision"]
