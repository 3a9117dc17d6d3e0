"""What a rule was worth in public repositories decides how loudly it speaks in the next one."""

import json
from pathlib import Path
from typing import Any

import pytest
from docs.false_alarms_page import records

import tunec
from tunec.compiler.cli.main import run
from tunec.compiler.diagnostics.codes import is_code
from tunec.compiler.lints import suppression
from tunec.compiler.lints.index import RECORDS, Record, is_rule, record, rules
from tunec.compiler.lints.suppression import BARS, UNJUDGED, Said, is_unproven, unproven
from tunec.targets.registry import REGISTRY

ROOT = Path(__file__).parents[2]
ERROR = Said(is_error=True, in_python=False)
WARNING = Said(is_error=False, in_python=False)
IN_PYTHON = Said(is_error=False, in_python=True)


@pytest.mark.usefixtures("as_judged")
def test_the_records_are_those_of_the_judgements() -> None:
    held = json.loads((ROOT / RECORDS).read_text("utf-8"))
    assert held == json.loads(records())
    assert all(is_rule(name) or is_code(name) for name in held)
    assert all(0 <= true <= judged for true, judged in held.values())
    assert record("command-cut-short").share > BARS[-1].share
    assert record("a-rule-of-tomorrow") == Record(0, 0)


@pytest.mark.usefixtures("as_judged")
def test_some_rules_are_proven_and_most_are_not() -> None:
    proven = [each.name for each in rules() if unproven(each.name, ERROR) is None]
    assert {"command-cut-short", "scheduler-overridden"} <= set(proven)
    assert len(proven) < len(rules()) / 2


CASES = [
    (Record(9, 9), ERROR, None),
    (Record(4, 4), ERROR, "warning"),
    (Record(7, 9), ERROR, "warning"),
    (Record(2, 2), ERROR, "note"),
    (Record(6, 9), ERROR, "note"),
    (Record(7, 9), WARNING, None),
    (Record(2, 2), WARNING, "note"),
    (Record(0, 0), WARNING, "note"),
    (Record(6, 9), WARNING, "note"),
    (Record(6, 9), IN_PYTHON, None),
    (Record(4, 9), IN_PYTHON, "note"),
    (Record(2, 2), IN_PYTHON, "note"),
]


@pytest.mark.parametrize(("mine", "said", "expected"), CASES)
def test_each_bar_leaves_its_level(
    mine: Record, said: Said, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suppression, "record", lambda _: mine)
    why = unproven("any", said)
    assert (None if why is None else why.error) == expected
    of = f"{mine.true} of {mine.judged} faults" if mine.judged else UNJUDGED
    assert why is None or of in why.text


def test_a_record_of_few_causes_is_near_that_of_all() -> None:
    assert Record(0, 0).share == pytest.approx(0.7)
    assert Record(1, 1).share < Record(9, 9).share
    assert {each.leaves for each in BARS} == {"note", "warning"}


def written(path: Path, files: dict[str, str]) -> Path:
    (path / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name).write_text(text, "utf-8")
    return path


FILES = {
    "ds.json": '{"train_batch_size": 8, "zero_optimisation": {"stage": 2}}',
    "run.sh": "deepspeed train.py --deepspeed ds.json\n",
}


@pytest.mark.parametrize(
    ("mine", "named", "given", "expected"),
    [
        (Record(27, 36), (), {}, "warning"),
        (Record(20, 36), (), {}, "note"),
        (Record(), (), {}, "note"),
        (Record(36, 36), (), {}, "error"),
        (Record(20, 36), ("ds.json", "run.sh"), {}, "error"),
        (Record(20, 36), (), {"hardware": "a100-sxm4-80g-x2"}, "error"),
    ],
)
def test_it_is_asked_in_a_repository_of_which_nothing_is_said(
    mine: Record,
    named: tuple[str, ...],
    given: dict[str, Any],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suppression, "record", lambda _: mine)
    path = written(tmp_path, FILES)
    paths = [path / name for name in named] or [path]
    told = [each for each in tunec.lint(*paths, **given).diagnostics if each.id == "unknown-key"]
    assert [each.severity for each in told] == [expected]
    assert [is_unproven(each) for each in told] == [expected != "error"]
    assert mine.judged or [each.notes[-1] for each in told] == [UNJUDGED]


@pytest.mark.parametrize(
    ("mine", "expected"),
    [(Record(36, 36), None), (Record(20, 36), "1 finding shown below the usual level, because")],
)
def test_the_command_says_how_many_are_lowered(
    mine: Record,
    expected: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(suppression, "record", lambda _: mine)
    run(["lint", str(written(tmp_path, FILES))], REGISTRY, "0")
    shown = capsys.readouterr()
    assert "zero_optimisation" in shown.out
    assert ("below the usual level" in shown.err) == (expected is not None)
    assert expected is None or expected in shown.err
