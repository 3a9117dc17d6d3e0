"""Files that are wrong as text: what happens to the run, and at which line."""

import json
from pathlib import Path

import pytest
import yaml
from tests.lints.lint_asking import lint

ENGINE = '{"train_micro_batch_size_per_gpu": 1,\n "gradient_clipping": 1.0%s}\n'
TRAINER = "output_dir: out\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-4\n%s"
TWICE = ENGINE % ',\n "gradient_clipping": 2.0'
RATES = TRAINER % "learning_rate: 2.0e-4\n"
OF_GLM = "data_config: {train_file: a.jsonl}\ntraining_args: {output_dir: o}\ntraining_args: {}\n"
BREAKS = ("\x85", "\u2028", "\u2029")
"""What ends a line in YAML 1.1, and in no editor."""


@pytest.mark.parametrize(
    ("files", "arguments", "name", "consequence"),
    [
        ({"ds.json": ENGINE % ","}, "--from huggingface", "E0105", "parse"),
        ({"ds.json": "\ufeff" + ENGINE % ""}, "", "E0105", "parse"),
        ({"ds.json": TWICE}, "--from deepspeed", "E0107", "parse"),
        ({"ds.json": TWICE, "args.yaml": TRAINER % "deepspeed: ds.json\n"}, "", "E0107", "silent"),
        ({"args.yaml": RATES}, "", "E0107", "silent"),
        ({"lora.yaml": OF_GLM}, "", "E0107", "parse"),
        ({"args.yaml": TRAINER % "\tseed: 1\n"}, "", "E0106", "parse"),
        ({"args.yaml": TRAINER % "seed: !!int x\n"}, "", "E0112", "parse"),
        ({"ds.json": ENGINE % ', "x": "\\ud800"'}, "", "E0112", "silent"),
        ({"args.yaml": TRAINER % "---\n"}, "", "E0113", "parse"),
        ({"ds.json": ENGINE % f', "x": {"[" * 99}{"]" * 99}'}, "", "E0110", "unclear"),
        ({"chart.yaml": "a: {{ b }}\nc: [\n"}, "", "E0104", "unclear"),
    ],
)
def test_a_fault_of_syntax_says_what_happens(
    files: dict[str, str], arguments: str, name: str, consequence: str, tmp_path: Path
) -> None:
    answer = lint(tmp_path, files, [*files, *arguments.split()])
    told = [each for each in answer.findings if each["id"] == name]
    assert [each["consequence"] for each in told] == [consequence]
    assert told[0]["notes"][0].startswith("what happens: ")


def test_other_readers_keep_the_last() -> None:
    assert json.loads(TWICE)["gradient_clipping"] == 2.0
    assert yaml.safe_load(RATES)["learning_rate"] == 2e-4
    assert json.loads('"\\ud800"') == "\ud800"


def test_sarif_holds_what_happens(tmp_path: Path) -> None:
    files = {"ds.json": TWICE}
    answer = lint(tmp_path, files, [*files, "--from", "deepspeed", "--format", "sarif"])
    results = json.loads(answer.out)["runs"][0]["results"]
    assert {each["ruleId"]: each["properties"]["consequence"] for each in results} == {
        "E0107": "parse"
    }


@pytest.mark.parametrize("character", [*BREAKS, "\u00e9", "\r"])
def test_lines_are_those_of_an_editor(character: str, tmp_path: Path) -> None:
    """And those of `json`, which counts line feeds, but for a lone carriage return."""
    files = {
        "ds.json": ENGINE % f',\n "_": "x{character}y",\n "zero_optimization": {{"stage": 4}}',
        "args.yaml": TRAINER % f'run_name: "x{character}y"\nevaluation_strategy: "no"\n',
    }
    if character == "\r":
        files["ds.json"] = files["ds.json"].replace("x\ry", "x")
    arguments = ["--software", "transformers=5.23.0"]
    found = lint(tmp_path, files, [*files, *arguments]).findings
    places = {label["path"]: label["line"] for each in found for label in each["labels"]}
    assert places["zero_optimization.stage"] == 4
    assert places["evaluation_strategy"] == (6 if character == "\r" else 5)


@pytest.mark.parametrize("character", BREAKS)
def test_a_fix_is_put_where_it_belongs(character: str, tmp_path: Path) -> None:
    before = TRAINER % f'run_name: "x{character}y"\nevaluation_strategy: "no"\n'
    lint(tmp_path, {"a.yaml": before}, ["a.yaml", "--software", "transformers=4.51.3", "--fix"])
    assert (tmp_path / "a.yaml").read_text("utf-8") == before.replace("evaluation_", "eval_")


@pytest.mark.parametrize("character", BREAKS)
def test_a_line_that_only_yaml_ends_is_told_of(character: str, tmp_path: Path) -> None:
    files = {"args.yaml": TRAINER % f"# x{character}y\n"}
    (told,) = (each for each in lint(tmp_path, files, [*files]).findings if each["id"] == "E0104")
    assert (told["labels"][0]["line"], told["labels"][0]["column"]) == (4, 5)
    assert any("end a line in YAML 1.1" in each for each in told["notes"])
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load(files["args.yaml"])
