"""A file is read for the sake of another one inside one project alone."""

import json
from pathlib import Path

import pytest
from tests.lints.lint_asking import Answer, ask

HIDDEN = "password_of_the_machine"


def lint(folder: Path, *words: str) -> Answer:
    return ask(folder, "lint", *words, "--format", "text")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository beside a file that is none of its business."""
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    (folder / "configs").mkdir()
    (tmp_path / "x.json").write_text(json.dumps({"bf16": {"enabled": HIDDEN}}), "utf-8")
    (tmp_path / "hosts").write_text(f"{HIDDEN} slots=many\n", "utf-8")
    return folder


def arguments(folder: Path, engine: object) -> None:
    text = f"output_dir: out\nlearning_rate: 1.0e-4\ndeepspeed: {engine}\n"
    (folder / "configs" / "args.yaml").write_text(text, "utf-8")


@pytest.mark.parametrize("form", ["up", "absolute", "link"])
def test_nothing_outside_is_read_or_shown(form: str, project: Path) -> None:
    outside = project.parent / "x.json"
    (project / "configs" / "link.json").symlink_to(outside)
    arguments(project, {"up": "../../x.json", "absolute": outside, "link": "link.json"}[form])
    done = lint(project, "configs/args.yaml")
    assert HIDDEN not in done.out + done.err
    assert "was not read: it lies outside the project" in done.out
    assert done.code == 0


def test_who_names_both_has_both_read(project: Path) -> None:
    arguments(project, "../../x.json")
    done = lint(project, "configs/args.yaml", "../x.json")
    assert HIDDEN in done.out


def test_what_lies_in_the_project_is_read(project: Path) -> None:
    (project / "x.json").write_text('{"bf16": {"enabled": "perhaps"}}', "utf-8")
    arguments(project, "../x.json")
    done = lint(project / "configs", "args.yaml")
    assert "perhaps" in done.out


def test_without_a_project_it_is_where_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "x.json").write_text('{"bf16": {"enabled": "perhaps"}}', "utf-8")
    arguments(tmp_path, "../x.json")
    assert "perhaps" in lint(tmp_path, "configs/args.yaml").out
    assert "perhaps" not in lint(tmp_path / "configs", "args.yaml").out


def test_hosts_of_others_stay_unread(project: Path) -> None:
    line = "deepspeed --hostfile ../hosts train.py\n"
    (project / "run.sh").write_text(line, "utf-8")
    assert HIDDEN not in lint(project, "run.sh").out


def test_a_file_further_up_is_told_from_none(project: Path) -> None:
    (project / ".git").rmdir()
    (project.parent / "configs").mkdir()
    (project.parent / "configs" / "ds.json").write_text("{}", "utf-8")
    arguments(project, "configs/ds.json")
    shown = lint(project / "configs", "args.yaml").out
    assert "configs/ds.json was not read: it lies outside the project" in shown
    arguments(project, "configs/none.json")
    shown = lint(project / "configs", "args.yaml").out
    assert "configs/none.json cannot be read: there is no such file" in shown


def test_all_is_read_where_that_is_allowed(project: Path) -> None:
    arguments(project, "../../x.json")
    assert HIDDEN in lint(project, "configs/args.yaml", "--allow-outside").out


@pytest.mark.parametrize("command", [("--to", "accelerate"), ("--to", "spec")])
def test_translating_reads_nothing_outside(command: tuple[str, str], project: Path) -> None:
    arguments(project, "../../x.json")
    done = ask(project, "translate", "configs/args.yaml", *command)
    assert done.code in (0, 1)
    assert HIDDEN not in done.out + done.err


def test_a_model_outside_is_not_known(project: Path) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (project.parent / "own").mkdir()
    (project.parent / "own" / "config.json").write_text(json.dumps(config), "utf-8")
    text = "base_model: ../own\ndatasets: [{path: a.jsonl, type: alpaca}]\nadapter: lora\n"
    (project / "axolotl.yaml").write_text(text, "utf-8")
    about = ("axolotl.yaml", "--hardware", "rtx-3090-x2")
    assert "this model is not known" in lint(project, *about).out
    assert "this model is not known" not in lint(project, *about, "--allow-outside").out


@pytest.mark.parametrize("where", ["folder", "link"])
def test_a_checkpoint_outside_is_not_looked_at(where: str, project: Path) -> None:
    name = "global_step9/zero_pp_rank_0_mp_rank_00_optim_states.pt"
    folder = project.parent / "out/checkpoint-9" / name
    folder.parent.mkdir(parents=True)
    folder.write_text("", "utf-8")
    (project / "ds.json").write_text('{"zero_optimization": {"stage": 2}}', "utf-8")
    output = "../out"
    if where == "link":
        (project / "out").mkdir()
        (project / "out/checkpoint-9").symlink_to(folder.parents[1])
        output = "out"
    text = f"output_dir: {output}\nlearning_rate: 1.0e-4\nresume_from_checkpoint: true\n"
    (project / "args.yaml").write_text(text + "deepspeed: ds.json\n", "utf-8")
    about = ("args.yaml", "--world-size", "4")
    assert "resume-of-another-run" not in lint(project, *about).out
    assert "resume-of-another-run" in lint(project, *about, "--allow-outside").out
