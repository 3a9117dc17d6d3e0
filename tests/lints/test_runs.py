"""Files of one call are one run, unless two are of one kind; a folder is the configs below it."""

import json
from pathlib import Path

import pytest
from tests.lints.lint_asking import Answer, lint

from tunec.compiler.lints import run_files
from tunec.compiler.lints.lint import Linted, lint_files
from tunec.targets.registry import TARGETS

_ZERO_2 = json.dumps({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}})
_ZERO_3 = json.dumps({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}})
_BOTH = json.dumps({"fp16": {"enabled": True}, "bf16": {"enabled": True}})
_TRAINER = "output_dir: out\nper_device_train_batch_size: 2\nlearning_rate: 1.0e-4\n"


def _read(folder: Path, files: dict[str, str], *named: str) -> Linted:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return lint_files([folder / each for each in named or files], TARGETS.readable())


def _files(linted: Linted, folder: Path) -> list[set[str]]:
    runs = ([each.name for each in run.documents if not each.is_view] for run in linted.runs)
    return [{Path(name).relative_to(folder).as_posix() for name in run} for run in runs]


def test_files_of_different_kinds_are_one_run(tmp_path: Path) -> None:
    linted = _read(tmp_path, {"ds.json": _ZERO_2, "conf/args.yaml": _TRAINER})
    assert _files(linted, tmp_path) == [{"ds.json", "conf/args.yaml"}]


def test_a_file_that_is_referred_to_is_of_that_run(tmp_path: Path) -> None:
    files = {"2.json": _ZERO_2, "3.json": _ZERO_3, "args.yaml": f"{_TRAINER}deepspeed: 3.json\n"}
    linted = _read(tmp_path, files)
    assert _files(linted, tmp_path) == [{"2.json"}, {"args.yaml", "3.json"}]
    assert linted.ok, "the trainer's batch of 2 is that of its own file"


def test_choices_are_each_read_beside_what_clashes_with_none(tmp_path: Path) -> None:
    linted = _read(tmp_path, {"2.json": _ZERO_2, "3.json": _ZERO_3, "args.yaml": _TRAINER})
    assert _files(linted, tmp_path) == [{"2.json", "args.yaml"}, {"3.json", "args.yaml"}]
    told = [each for each in linted.diagnostics if each.id == "deepspeed-and-trainer-differ"]
    assert told
    assert not any(label.span.file.endswith("3.json") for each in told for label in each.labels)


def test_directories_are_runs_where_files_clash(tmp_path: Path) -> None:
    files = {f"{each}/{name}": text for each in "ab" for name, text in _pair().items()}
    linted = _read(tmp_path, {**files, "ds.json": _BOTH})
    assert _files(linted, tmp_path) == [
        {"a/ds.json", "a/args.yaml"},
        {"b/ds.json", "b/args.yaml"},
        {"ds.json"},
    ]
    assert {"fp16-and-bf16"} == {each.id for each in linted.diagnostics if each.severity == "error"}


def _pair() -> dict[str, str]:
    return {"ds.json": _ZERO_3, "args.yaml": _TRAINER}


def test_objectives_are_of_one_kind_and_flags_are_not_files(tmp_path: Path) -> None:
    sft = "output_dir: o\nmodel_name_or_path: m\npacking: true\nmax_length: 512\n"
    dpo = "output_dir: o\nmodel_name_or_path: m\nbeta: 0.1\nloss_type: sigmoid\nmax_length: 512\n"
    linted = _read(tmp_path, {"sft.yaml": sft, "dpo.yaml": dpo})
    assert _files(linted, tmp_path) == [{"sft.yaml"}, {"dpo.yaml"}]
    script = "trl sft --config sft.yaml --learning_rate 1e-4 --output_dir o --bf16 true\n"
    (tmp_path / "b").mkdir()
    linted = _read(tmp_path / "b", {"sft.yaml": sft, "train.sh": script})
    assert len(linted.runs) == 1


_FLAGS = "--output_dir o --bf16 True --save_strategy no --gradient_accumulation_steps 1"
_STAGES = f"""export WANDB_DISABLED=true
deepspeed --num_gpus 4 train.py --deepspeed 2.json --per_device_train_batch_size 4 {_FLAGS}
python merge.py --bf16 True
deepspeed --num_gpus 4 train.py --deepspeed 3.json --per_device_train_batch_size 2 {_FLAGS}
"""


def test_each_command_of_a_script_is_a_run_of_its_own(tmp_path: Path) -> None:
    """With the files that it names; a finding of one stands at its place."""
    files = {"2.json": _ZERO_2, "3.json": _ZERO_3, "all.sh": _STAGES}
    linted = _read(tmp_path, files)
    assert _files(linted, tmp_path) == [{"all.sh", "2.json"}, {"all.sh", "3.json"}]
    assert linted.ok
    spoilt = {**files, "all.sh": _STAGES.replace("batch_size 2", "batch_size 3")}
    (tmp_path / "b").mkdir()
    linted = _read(tmp_path / "b", spoilt)
    told = [each for each in linted.diagnostics if each.id == "deepspeed-and-trainer-differ"]
    spans = [{(Path(label.span.file).name, label.span.line) for label in told[0].labels}]
    assert len(told) == 1
    assert spans == [{("all.sh", 4), ("3.json", 1)}]


def test_a_file_of_one_command_is_followed_to_what_it_names(tmp_path: Path) -> None:
    args = _TRAINER.replace("size: 2", "size: 4")
    files = {
        "a/args.yaml": f"{args}deepspeed: a/ds.json\n",
        "b/args.yaml": f"{_TRAINER}deepspeed: b/ds.json\n",
        "a/ds.json": _ZERO_2,
        "b/ds.json": _ZERO_3,
        "all.sh": "torchrun train.py a/args.yaml\ntorchrun train.py b/args.yaml\n",
    }
    linted = _read(tmp_path, files, ".")
    runs = [{each for each in run if each != "all.sh"} for run in _files(linted, tmp_path)]
    assert runs == [{"a/args.yaml", "a/ds.json"}, {"b/args.yaml", "b/ds.json"}]
    assert linted.ok


@pytest.mark.parametrize(
    ("moves", "wanted"),
    [
        ('cd "$(dirname "$0")/steps" || exit 1', "2.json"),
        ('HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)\ncd steps', "$HERE/steps/2.json"),
        ("(cd other)\ncd steps && cd ../steps", "$PWD/2.json"),
        ("(cd steps)", "steps/2.json"),
        ("R=`dirname $0`", "${R}/steps/2.json"),
    ],
)
def test_a_file_is_looked_for_where_the_command_runs(
    tmp_path: Path, moves: str, wanted: str
) -> None:
    """A file of the same name beside the script is another one."""
    script = f"{moves}\ndeepspeed t.py --deepspeed {wanted} --bf16 True {_FLAGS}\n"
    files = {"steps/2.json": _ZERO_2, "2.json": _ZERO_3, "run.sh": script}
    linted = _read(tmp_path, files, "run.sh")
    assert _files(linted, tmp_path) == [{"run.sh", "steps/2.json"}]


def test_a_folder_that_is_not_known_is_none(tmp_path: Path) -> None:
    moves = "if [ -d steps ]; then cd steps; fi"
    script = f"{moves}\ndeepspeed t.py --deepspeed 2.json --bf16 True {_FLAGS}\n"
    files = {"steps/2.json": _ZERO_2, "2.json": _ZERO_3, "run.sh": script}
    assert _files(_read(tmp_path, files, "run.sh"), tmp_path) == [{"run.sh", "2.json"}]


@pytest.mark.parametrize(
    ("flag", "is_told"), [("", True), ("--fp16 False", False), ("--fp16 $F", False)]
)
def test_a_flag_wins_over_the_file_that_the_command_names(
    tmp_path: Path, flag: str, is_told: bool
) -> None:
    text = "model_name_or_path: m\noutput_dir: o\nbeta: 0.1\nbf16: true\nfp16: true\n"
    script = f"trl dpo --config dpo.yaml --dataset_name d {flag}\n"
    linted = _read(tmp_path, {"dpo.yaml": text, "run.sh": script})
    assert ("fp16-and-bf16" in {each.id for each in linted.diagnostics}) is is_told


def test_a_fix_of_one_command_is_no_other_s(tmp_path: Path) -> None:
    line = "torchrun t.py --output_dir o --bf16 True --save_strategy no --fp16 {}\n"
    linted = _read(tmp_path, {"all.sh": line.format("True") + line.format("False")})
    told = next(each for each in linted.diagnostics if each.id == "fp16-and-bf16")
    assert told.primary is not None
    assert told.primary.span.line == 1


def test_every_file_that_is_named_is_read(tmp_path: Path) -> None:
    linted = _read(tmp_path, {f"{at}.json": _BOTH for at in range(80)})
    assert len(linted.runs) == 80
    assert len({each.primary.span.file for each in linted.diagnostics if each.primary}) == 80


def test_an_allowance_is_of_use_where_one_run_needs_it(tmp_path: Path) -> None:
    allowed = "lr_scheduler_type: cosine  # tunec: allow(scheduler-overridden): known\n"
    scheduled = {"scheduler": {"type": "WarmupLR"}, **json.loads(_ZERO_3)}
    files = {"2.json": _ZERO_2, "3.json": json.dumps(scheduled), "args.yaml": _TRAINER + allowed}
    names = {each.id for each in _read(tmp_path, files).diagnostics}
    assert not names & {"scheduler-overridden", "unused-allowance"}
    names = {each.id for each in _read(tmp_path, {**files, "3.json": _ZERO_3}).diagnostics}
    assert "unused-allowance" in names


def test_a_fix_on_which_runs_do_not_agree_is_none(tmp_path: Path) -> None:
    def fixed(micro: int) -> set[str]:
        other = _ZERO_3.replace("2,", f"{micro},")
        files = {"2.json": _ZERO_2, "3.json": other, "args.yaml": _TRAINER}
        return {Path(name).name for name in _read(tmp_path, files).fixed()}

    assert "args.yaml" not in fixed(8), "two files ask for two numbers"


def test_a_folder_is_the_configs_below_it(tmp_path: Path) -> None:
    files = {"a/ds.json": _BOTH, ".git/ds.json": _BOTH, "a/data.json": '[{"text": "a"}]'}
    (tmp_path / "gone.json").symlink_to("nowhere")
    files["a/chart.yaml"] = "image: {{ .Values.image }}\n"
    linted = _read(tmp_path, {**files, "a/notes.md": "# none"}, ".")
    assert _files(linted, tmp_path) == [{"a/ds.json"}]
    assert [Path(each).name for each in linted.passed_over] == ["chart.yaml", "data.json"]
    assert {each.id for each in linted.diagnostics if each.severity != "note"} == {"fp16-and-bf16"}


def test_a_walk_of_a_folder_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At so many files, or folders; the command says of which folder more was not read."""
    for name in ("a/one.json", "b/two.json", "c/three.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
    (tmp_path / "a/around").symlink_to(tmp_path)
    assert run_files.files_of([tmp_path]).cut_short == ()
    monkeypatch.setattr(run_files, "_MOST_FILES", 2)
    assert [each.name for each in run_files.files_of([tmp_path]).files] == ["one.json", "two.json"]
    assert run_files.files_of([tmp_path, tmp_path / "a"]).cut_short == (tmp_path,)
    monkeypatch.setattr(run_files, "_MOST_FOLDERS", 2)
    assert [each.name for each in run_files.files_of([tmp_path]).files] == ["one.json"]
    assert "holds too many files to read at once" in _asked(tmp_path, ".").err


def test_another_file_system_is_not_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as /proc below /."""
    monkeypatch.setattr(run_files.os, "walk", lambda _: iter(seen))
    below = ["proc", "no such folder"]
    seen = [("/", below, [])]
    assert Path("/proc").stat().st_dev != Path("/").stat().st_dev
    assert (run_files.files_of([Path("/")]).files, below) == ({Path("/"): False}, [])


def test_scripts_of_a_library_s_package_are_the_library(tmp_path: Path) -> None:
    package = tmp_path / "transformers-4.40.0/src/transformers"
    (package / "models").mkdir(parents=True)
    for each in (package / "__init__.py", package / "models/llama.py", tmp_path / "train.py"):
        each.write_text("model = AutoModel.from_pretrained(name)\n", "utf-8")
    (package / "models/ds.json").write_text('{"train_batch_size": 8}\n', "utf-8")
    assert {each.name for each in run_files.files_of([tmp_path]).files} == {"train.py", "ds.json"}
    named = run_files.files_of([package]).files
    assert {each.name for each in named} == {"__init__.py", "llama.py", "ds.json"}


def _asked(folder: Path, *arguments: str) -> Answer:
    files = {"a/2.json": _ZERO_2, "a/3.json": _ZERO_3, "a/spec.yaml": "tunec: 1\nmodel: m\n"}
    return lint(folder, files, arguments)


def test_the_command_says_how_files_were_taken(tmp_path: Path) -> None:
    told = _asked(tmp_path, "a")
    assert "read as 2 runs" in told.err
    assert "read 3 files: 2 DeepSpeed; 1 skipped: no known program reads a/spec.yaml" in told.err
    assert "`tunec plan` says" in _asked(tmp_path, "a/spec.yaml").out


def test_a_folder_without_configs_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    told = _asked(tmp_path, "empty")
    assert told.code == 1
    assert [each["id"] for each in told.findings] == ["E0201"]
    assert "no file below it" in told.findings[0]["message"]


def test_a_folder_of_other_files_has_nothing_that_could_be_wrong(tmp_path: Path) -> None:
    told = lint(tmp_path, {"notes/read.rst": "to read\n"}, ("notes",))
    assert told.code == 0
    assert [(each["id"], each["severity"]) for each in told.findings] == [("E0201", "note")]
