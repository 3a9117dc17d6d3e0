"""What `tunec lint` prints: for programs, by the recipes of docs/lint-in-ci.md, and at its end."""

import io
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from runpy import run_path
from subprocess import run

import pytest
import yaml
from tests.lints.lint_asking import lint
from tests.lints.lint_pages import examples

from tunec.compiler.cli.lint_summary import ProgressLine
from tunec.compiler.cli.session import Session
from tunec.compiler.fleet import progress
from tunec.compiler.lints.index import rule_names
from tunec.targets.registry import REGISTRY

_ROOT = Path(__file__).parents[2]
_SARIF = run_path(str(_ROOT / "tests/diagnostics/test_renderers.py"))["SARIF"]
_GITHUB = re.compile(r"::(?:error|warning|notice) (?:file=[^,]+,line=\d+,.*)?title=[\w-]+::\S.*")
_PAGE = (_ROOT / "docs/lint-in-ci.md").read_text("utf-8")


@pytest.mark.parametrize("name", rule_names())
def test_a_finding_is_valid_sarif_and_one_line_for_github(name: str, tmp_path: Path) -> None:
    example = next(each for each in examples(name) if each.is_bad)
    log = json.loads(lint(tmp_path, example.files, (*example.arguments, "--format", "sarif")).out)
    assert [fault.message for fault in _SARIF.iter_errors(log)] == []
    results = log["runs"][0]["results"]
    assert {each["ruleId"] for each in results} == {name}
    told = lint(tmp_path, {}, (*example.arguments, "--format", "github")).out.splitlines()
    assert len(told) == len(results)
    assert all(_GITHUB.fullmatch(line) for line in told), told


def _hook() -> dict[str, str]:
    hooks = yaml.safe_load((_ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    (found,) = [each for each in hooks if each["id"] == "tunec-lint"]
    return dict(found)


def test_the_hook_is_the_one_that_the_page_shows() -> None:
    hook = _hook()
    (shown,) = re.findall(r"^```yaml\n(repos:\n.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)
    (repository,) = yaml.safe_load(shown)["repos"]
    assert [each["id"] for each in repository["hooks"]] == [hook["id"]]
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert hook["entry"].split()[0] in project["scripts"]


def test_the_arguments_of_the_hook_are_taken(tmp_path: Path) -> None:
    (arguments,) = re.findall(r"^\s*args: (\[.*\])$", _PAGE, re.MULTILINE)
    files = {"ds_config.json": '{"train_micro_batch_size_per_gpu": 1}\n'}
    assert lint(tmp_path, files, (*files, *yaml.safe_load(arguments))).code == 0


@pytest.mark.parametrize(
    "name",
    [
        *("ds_config.json", "configs/training_args.yaml", "train.sh", "sft.yaml", "zero3.json"),
        *("examples/qlora-fsdp.yml", "out/launch/launch.sh"),
    ],
)
def test_the_hook_reads_the_usual_names(name: str) -> None:
    assert re.search(_hook()["files"], name)


def _steps() -> list[tuple[str, bool]]:
    """The commands of the recipe for GitHub Actions, and whether one runs after a failure too."""
    blocks = re.findall(r"^```yaml\n(jobs:\n.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)
    steps = yaml.safe_load(blocks[0])["jobs"]["lint"]["steps"]
    return [(step["run"], step.get("if") == "always()") for step in steps if "run" in step]


def _job(folder: Path, clipping: str) -> tuple[list[int], Path]:
    """The recipe run step by step in a clone, as a runner does: a failure ends all but `always`."""
    origin, clone = folder / "origin", folder / "clone"
    (origin / "configs/my-run").mkdir(parents=True)
    config = f'{{"train_micro_batch_size_per_gpu": 1, "{clipping}": 1.0}}\n'
    (origin / "configs/my-run/ds_config.json").write_text(config, "utf-8")
    for command in ("init -q", "add -A", "-c user.name=t -c user.email=t@e.org commit -qm first"):
        run(["git", "-C", str(origin), *command.split()], check=True)
    run(["git", "clone", "-q", str(origin), str(clone)], check=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    codes: list[int] = []
    for command, is_always in _steps():
        if command.startswith("pip install") or (any(codes) and not is_always):
            continue  # it is installed
        done = run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command],
            cwd=clone,
            env={**os.environ, "PATH": path, "CI": "true"},
            check=False,
        )
        codes.append(done.returncode)
    return codes, clone


@pytest.mark.parametrize(("clipping", "code"), [("gradient_clipping", 0), ("gradient_cliping", 1)])
def test_the_recipe_for_actions_runs(clipping: str, code: int, tmp_path: Path) -> None:
    codes, clone = _job(tmp_path, clipping)
    assert codes == [code, code]
    log = json.loads((clone / "tunec.sarif").read_text("utf-8"))
    assert [fault.message for fault in _SARIF.iter_errors(log)] == []
    assert len(log["runs"][0]["results"]) == code


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
