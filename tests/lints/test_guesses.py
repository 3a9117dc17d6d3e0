"""What rests on a guess, or on a value that only running a file tells, is a note or nothing."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from tests.lints.lint_pages import examples

import tunec
from tunec.compiler.frontend.nodes import plain
from tunec.compiler.lints.documents import read_texts
from tunec.compiler.lints.index import rule_names
from tunec.compiler.lints.kinds import fields_of
from tunec.compiler.lints.lint import lint_texts
from tunec.targets.registry import REGISTRY

SFT = (
    "model_name_or_path: a/b\ndataset_name: c\noutput_dir: out\nmax_length: 1024\n"
    "gradient_accumulation_steps: 7\nlearning_rate: 1.0e-5\n"
)
ENGINE = '{"gradient_accumulation_steps": 4, "train_micro_batch_size_per_gpu": "auto"}'
DIFFER = "deepspeed-and-trainer-differ"
OWN = """import yaml
cfg = yaml.safe_load(open("sft.yaml"))
print(cfg["model_name_or_path"], cfg["dataset_name"], cfg["output_dir"], cfg["max_length"])
"""
PARSED = OWN + "from trl import TrlParser\n"


def folder(path: Path, **files: str) -> Path:
    (path / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text, "utf-8")
    return path


def severity(path: Path, rule: str, *named: str) -> str | None:
    linted = tunec.lint(*(path / each for each in named)) if named else tunec.lint(path)
    return next((each.severity for each in linted.diagnostics if each.id == rule), None)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", "error"),
        ("accelerate launch train.py --deepspeed other.json\n", "note"),
        ("deepspeed train.py --config sft.yaml --deepspeed ds.json\n", "error"),
    ],
)
def test_a_script_that_starts_other_files_makes_a_note_of_what_two_files_differ_in(
    script: str, expected: str, tmp_path: Path
) -> None:
    files = {"sft__yaml": SFT, "ds__json": ENGINE}
    if script:
        files |= {"run__sh": script, "train__py": "from trl import SFTTrainer, TrlParser\n"}
    assert severity(folder(tmp_path, **files), DIFFER) == expected


def test_files_that_are_named_are_one_run(tmp_path: Path) -> None:
    start = "accelerate launch train.py --deepspeed other.json\n"
    path = folder(tmp_path, sft__yaml=SFT, ds__json=ENGINE, run__sh=start)
    assert severity(path, DIFFER, "sft.yaml", "ds.json") == "error"


def test_a_file_that_leaves_deepspeed_empty_is_not_held_against_one_beside_it(
    tmp_path: Path,
) -> None:
    path = folder(tmp_path, sft__yaml=f"{SFT}deepspeed:\n", ds__json=ENGINE)
    assert severity(path, DIFFER) is None


@pytest.mark.parametrize(("source", "expected"), [(OWN, "note"), (PARSED, "error")])
def test_a_file_that_a_script_loads_itself_has_another_reader(
    source: str, expected: str, tmp_path: Path
) -> None:
    path = folder(tmp_path, sft__yaml=f"{SFT}packing: 'no'\n", train__py=source)
    assert severity(path, "boolean-as-text") == expected


EMPTY = (
    "run_name: hub_model_id: max_steps: warmup_steps: save_steps: eval_steps: logging_steps: seed:"
    " save_total_limit: data_seed: weight_decay: max_grad_norm: optim: lr_scheduler_type:"
)


@pytest.mark.parametrize(("empty", "expected"), [("", "error"), (EMPTY, "note")])
def test_a_file_that_is_mostly_empty_is_a_template(
    empty: str, expected: str, tmp_path: Path
) -> None:
    path = folder(tmp_path, sft__yaml=f"{SFT}packing: 'no'\n" + empty.replace(" ", "\n"))
    assert severity(path, "boolean-as-text") == expected


@pytest.mark.parametrize(
    ("source", "expected"), [("", "warning"), ("training_args.eval_strategy = 'steps'\n", None)]
)
def test_a_strategy_that_a_script_sets_is_not_missed(
    source: str, expected: str | None, tmp_path: Path
) -> None:
    flags = "--output_dir out --per_device_train_batch_size 1 --eval_steps 50 --val_size 9"
    files = {"run__sh": f"python train.py {flags}\n", "train__py": source}
    assert severity(folder(tmp_path, **files), "interval-without-strategy") == expected


TARGETS = REGISTRY.readable()
_HEADS: Final[Mapping[str, str]] = {
    "hf": "from transformers import Seq2SeqTrainingArguments as C\n",
    "peft": "from peft import LoraConfig as C\n",
    **{
        name.lower(): f"from trl import {name}Config as C\n"
        for name in ("SFT", "DPO", "GRPO", "KTO", "RLOO", "GKD", "PPO")
    },
}
_PARTS: Final = 8
Case = tuple[str, dict[str, Any], dict[str, str]]


@cache
def _cases() -> tuple[Case, ...]:
    """Of each example that can be written so: its kind, its arguments, the files beside it."""
    return tuple(_read())


def _read() -> Iterator[Case]:
    for name in rule_names():
        for each in examples(name):
            reading = read_texts(each.files, TARGETS)
            mine = [d for d in reading.documents if d.kind in _HEADS and not d.is_view]
            if len(mine) == 1 and mine[0].format in ("yaml", "json"):
                found = plain(mine[0].root)
                known = fields_of(mine[0].kind)
                given = {key: value for key, value in found.items() if key in known}
                others = {name: t for name, t in each.files.items() if name != mine[0].name}
                yield mine[0].kind, given, others


def _found(case: Case, hidden: str = "", more: str = "") -> set[str]:
    kind, given, others = case
    words = (f"{key}={'f()' if key == hidden else repr(value)}, " for key, value in given.items())
    text = f"{_HEADS[kind]}x = C({''.join(words)}{more})\n"
    found = lint_texts({**others, "train.py": text}, TARGETS).diagnostics
    return {each.id for each in found if each.severity != "note"}


@pytest.mark.parametrize("part", range(_PARTS))
def test_nothing_is_found_that_another_value_would_not_show(part: int) -> None:
    cases = _cases()[part::_PARTS]
    assert len(cases) > 30
    wrong = {
        (hidden or "**more", str(case), rule)
        for case in cases
        for found in (_found(case),)
        for hidden in (*case[1], "")
        for rule in _found(case, hidden, "" if hidden else "**more") - found
    }
    assert not wrong


def test_much_is_found_in_python_too() -> None:
    """What is hidden is hidden from something: most examples are as wrong as calls of Python."""
    found = [_found(case) for case in _cases()]
    assert len([each for each in found if each]) > 100


def test_flags_that_a_script_of_nobody_shares_with_a_config_are_not_that_configs() -> None:
    """torchtune's and ai-toolkit's configs have a model and a dataset, and no program has flags."""
    run = "python somebodys/sft.py --model a/b --dataset d.jsonl\n"
    reading = read_texts({"run.sh": run}, TARGETS)
    assert [each.kind for each in reading.documents] == ["launch"]


@pytest.mark.parametrize(
    ("target", "remedy"), [("gate_proj", "remove them"), ("out_proj", "did you mean `o_proj`?")]
)
def test_a_layer_is_offered_for_a_target_that_may_stand_for_it(target: str, remedy: str) -> None:
    text = (
        "stage: sft\ndo_train: true\nmodel_name_or_path: openai/gpt-oss-20b\ntemplate: gpt_oss\n"
        f"finetuning_type: lora\nlora_target: q_proj,k_proj,{target}\ndataset: a\noutput_dir: o\n"
    )
    found = lint_texts({"train.yaml": text}, TARGETS).diagnostics
    assert [each.help for each in found if each.id == "lora-target-unused"] == [remedy]
