"""What rests on a guess is a note: files put together since they lie near, and files of others."""

from pathlib import Path

import pytest

import tunec

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
        files["run__sh"] = script
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
