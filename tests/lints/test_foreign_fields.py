"""No key of a file that is a config is passed over in silence, and what was meant is offered."""

from pathlib import Path

import pytest
from tests.lints.lint_asking import lint

_KEY = "per_gpu_batch"
_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\noutput_dir: out\npacking: true\nmax_length: 9\n"


@pytest.mark.parametrize("named", [".", "training_args.yaml"])
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"{_KEY}: 2\n", "unrecognised-file"),
        (f"output_dir: out\n{_KEY}: 2\n", "key-of-no-class"),
        (f"output_dir: out\n{_KEY}: 2\nlearning_rate: 1.0e-4\n", "key-of-no-class"),
        (f"{_SFT}{_KEY}: 2\n", "key-of-no-class"),
        (f"{_KEY}: 2\nbatch_accumulation: 4\nlr: 0.1\n", "unrecognised-file"),
    ],
)
def test_a_key_that_is_no_field_is_told(text: str, rule: str, named: str, tmp_path: Path) -> None:
    answer = lint(tmp_path, {"training_args.yaml": text}, [named])
    told = [each for each in answer.findings if each["id"] == rule]
    assert [each["severity"] for each in told] == ["warning"]
    assert _KEY in told[0]["message"] + " ".join(told[0]["notes"])
    assert "`per_device_train_batch_size`" in told[0]["help"] + " ".join(told[0]["notes"]) or (
        "`per_gpu_train_batch_size`" in " ".join(told[0]["notes"])
    )


def test_keys_of_a_script_s_own_class_are_a_note(tmp_path: Path) -> None:
    text = "output_dir: out\nmy_corpus: a\nprompt_column_of_mine: b\nlearning_rate: 1.0e-4\n"
    answer = lint(tmp_path, {"training_args.yaml": text}, ["."])
    told = {each["severity"] for each in answer.findings if each["id"] == "key-of-no-class"}
    assert told == {"note"}
    own = "model_name_or_path: m\ndataset_name: d\noutput_dir: out\npreprocessing_num_workers: 4\n"
    answer = lint(tmp_path, {"training_args.yaml": own}, ["."])
    assert "key-of-no-class" not in answer.names, "these are known of scripts"


def test_a_key_that_the_repository_s_own_source_declares_is_not_told(tmp_path: Path) -> None:
    files = {
        "training_args.yaml": f"output_dir: out\n{_KEY}: 2\n",
        "train.py": "from dataclasses import dataclass\n\n@dataclass\nclass Mine:\n"
        f"    {_KEY}: int = 1\n",
    }
    (tmp_path / ".git").mkdir()
    assert "key-of-no-class" not in lint(tmp_path, files, ["."]).names


def test_a_stranger_of_another_name_is_still_passed_over(tmp_path: Path) -> None:
    answer = lint(tmp_path, {"values.yaml": "replicas: 3\n"}, ["."])
    assert answer.findings == []
    assert "values.yaml" in answer.err
