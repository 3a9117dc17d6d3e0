"""What a run does not show is not told: each case has a twin in which the same rule speaks."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.lints.lint_asking import lint
from tests.tables import table

from tunec.compiler.lints.index import rule

Case = tuple[str, dict[str, str], str]
"""The rule, files, and further arguments."""
TABLES = table(__file__)
TEXTS = TABLES["TEXTS"]


def cases(name: str) -> dict[str, Case]:
    """The cases of a table; `<<NAME>>` in their files is one of the texts that many share."""
    return {
        name: (
            each["rule"],
            {k: filled(v) for k, v in each["files"].items()},
            each.get("arguments", ""),
        )
        for name, each in TABLES[name].items()
    }


def filled(text: str) -> str:
    return filled_by(TEXTS, text)


def filled_by(texts: Mapping[str, str], text: str) -> str:
    return re.sub(r"<<(\w+)>>", lambda found: texts[found[1]], text)


SPEAKS, SILENT, OFF = map(cases, ("SPEAKS", "SILENT", "SWITCHED_OFF"))


def told(case: Case, folder: Path) -> list[str]:
    rule, files, arguments = case
    (folder / ".git").mkdir()
    named = [name for name in files if not name.endswith((".txt", ".py")) and name != "setup.sh"]
    answer = lint(folder, files, [*named, *arguments.split()])
    assert not any(each["id"].startswith("E") for each in answer.findings), answer.out
    return [each["severity"] for each in answer.findings if each["id"] == rule]


@pytest.mark.parametrize("name", SPEAKS)
def test_what_is_shown_is_told(name: str, tmp_path: Path) -> None:
    case = SPEAKS[name]
    wanted = {"note"} if rule(case[0]).severity == "note" else {"error", "warning"}
    assert set(told(case, tmp_path)) & wanted


@pytest.mark.parametrize("name", SILENT)
def test_what_is_not_shown_is_not_told(name: str, tmp_path: Path) -> None:
    assert told(SILENT[name], tmp_path) == []
    assert SILENT[name][0] in {rule for rule, _, _ in SPEAKS.values()}


@pytest.mark.parametrize("name", OFF)
def test_what_waits_for_a_switch_that_is_off_on_purpose_is_a_note(
    name: str, tmp_path: Path
) -> None:
    assert told(OFF[name], tmp_path) == ["note"]


def test_a_record_of_a_run_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    assert lint(tmp_path, {"wandb/config.yaml": TEXTS["RECORD"]}, ["."]).names == []


def test_what_several_runs_find_at_one_place_is_told_once(tmp_path: Path) -> None:
    start = f"deepspeed --num_gpus 1 train.py --deepspeed ds.json {TEXTS['SLOW']}"
    files = {"one.sh": start, "two.sh": start, "ds.json": TEXTS["OFFLOADED"].replace("cpu", "none")}
    found = lint(tmp_path, files, ["one.sh", "two.sh"]).findings
    (zero,) = (each for each in found if each["id"] == "zero-of-one-process")
    assert zero["notes"][-1] == "so it is with two.sh"


def test_directives_that_sbatch_does_not_read_are_told_together(tmp_path: Path) -> None:
    found = lint(tmp_path, {"job.slurm": TEXTS["JOB"]}, ["job.slurm"]).findings
    (late,) = (each["message"] for each in found if each["id"] == "batch-directive-not-read")
    assert late.startswith("`#SBATCH --nodes=1` comes after")
    assert late.endswith("and so does 1 more")


def test_where_no_release_of_trl_is_known_packing_is_a_possibility(tmp_path: Path) -> None:
    files = {"run.yaml": TEXTS["SFT"] + "\npacking: true\nattn_implementation: sdpa\n"}
    assert told(("packing-without-varlen", files, ""), tmp_path) == ["note"]


def test_the_help_for_a_number_is_a_number(tmp_path: Path) -> None:
    import yaml

    files = {"run.yaml": TEXTS["TRAINER"].replace("1.0e-6", "2e-5")}
    (found,) = (e for e in lint(tmp_path, files, ["run.yaml"]).findings if "text" in e["message"])
    assert yaml.safe_load(found["help"].removeprefix("write ")) == 2e-5


def test_what_is_certain_to_fail_is_an_error(tmp_path: Path) -> None:
    case = SPEAKS["int8 by an old bitsandbytes on a device without it"]
    rule, files, arguments = case
    assert told(case, tmp_path) == ["error"]
    (tmp_path / "elsewhere").mkdir()
    assert told((rule, {"run.yaml": files["run.yaml"]}, arguments), tmp_path / "elsewhere") == [
        "warning"
    ]
