"""The last line says what was read, also where nothing is wrong; progress is for terminals."""

import io
import json
from pathlib import Path

import pytest
from tests.lints.lint_asking import lint

from tunec.compiler.cli.lint_summary import ProgressLine
from tunec.compiler.cli.session import Session
from tunec.compiler.fleet import progress
from tunec.targets.registry import REGISTRY

_ENGINE = json.dumps({"train_micro_batch_size_per_gpu": "auto"})
_TRAINER = "output_dir: out\nlearning_rate: 1.0e-4\n"
_SFT = "model_name_or_path: m\noutput_dir: out\npacking: true\nmax_length: 9\nlora_r: 8\n"
_SCRIPT = (
    "deepspeed --num_gpus 2 train.py --output_dir o --learning_rate 1e-4 --num_train_epochs 1\n"
)
_FILES = {
    **{f"{at}/ds.json": _ENGINE for at in "abc"},
    "a/args.yaml": _TRAINER,
    "b/run.sh": _SCRIPT,
    "c/run.sh": _SCRIPT,
    "c/sft.yaml": _SFT,
    "chart.yaml": "replicas: 3\n",
    "values.yaml": "image: a\n",
}


def _last(folder: Path, files: dict[str, str], *arguments: str) -> str:
    return lint(folder, files, arguments or ["."]).err.splitlines()[-1]


def test_files_are_counted_by_kind(tmp_path: Path) -> None:
    assert _last(tmp_path, _FILES) == (
        "read 9 files: 3 DeepSpeed, 2 launch scripts, 1 training arguments, 1 TRL; "
        "2 skipped: no known program reads chart.yaml and values.yaml"
    )


@pytest.mark.parametrize("format", ["text", "json", "sarif", "github"])
def test_it_is_said_where_nothing_is_wrong_and_beside_every_format(
    format: str, tmp_path: Path
) -> None:
    sound = {"ds.json": _ENGINE}
    assert _last(tmp_path, sound, ".", "--format", format) == "read 1 file: 1 DeepSpeed"


def test_json_is_still_the_list_of_findings(tmp_path: Path) -> None:
    sound = {"training_args.yaml": _TRAINER}
    assert json.loads(lint(tmp_path, sound, ["."]).out) == []


def test_of_many_that_are_skipped_a_few_are_named(tmp_path: Path) -> None:
    files = {f"chart_{at}.yaml": "replicas: 3\n" for at in range(9)}
    assert _last(tmp_path, files).endswith("chart_1.yaml, chart_2.yaml and 6 more")


def test_a_file_that_is_named_and_unknown_is_counted(tmp_path: Path) -> None:
    assert _last(tmp_path, {"x.yaml": "a: 1\n"}, "x.yaml") == "read 1 file: 1 of no known kind"


def test_what_cannot_be_read_is_a_finding_and_no_more(tmp_path: Path) -> None:
    answer = lint(tmp_path, {}, ["none.yaml"])
    assert (answer.names, answer.err) == (["E0201"], "")


class _Stream(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: is_terminal  # type: ignore[method-assign]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_on_a_terminal_alone(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_TERMINAL_SECONDS", -1.0)
    monkeypatch.setattr(progress, "_PLAIN_SECONDS", -1.0)
    stream = _Stream(is_terminal=is_terminal)
    shown = ProgressLine(Session(REGISTRY, "text", io.StringIO(), stream))
    for _ in range(3):
        shown.step("files", 3)
    shown.step("runs", 2)
    shown.end()
    if is_terminal:
        assert all(each in stream.getvalue() for each in ("1 of 3 files", "3 of 3", "1 of 2 runs"))
        assert stream.getvalue().endswith("\r\x1b[K")
    else:
        assert stream.getvalue() == ""
