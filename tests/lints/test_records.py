"""What a rule was worth in public repositories decides how loudly it speaks in the next one."""

import json
from pathlib import Path
from typing import Any

import pytest
from docs.false_alarms_page import records

import tunec
from tunec.compiler.diagnostics.codes import is_code
from tunec.compiler.lints import suppression
from tunec.compiler.lints.index import RECORDS, Record, is_rule, record, rules
from tunec.compiler.lints.suppression import BARS, UNJUDGED, Said, is_unproven, unproven

ROOT = Path(__file__).parents[2]
WHEREVER = Said(is_error=True, of_engines=True, in_python=True, starts_own=False)


@pytest.mark.usefixtures("as_judged")
def test_the_records_are_those_of_the_judgements() -> None:
    held = json.loads((ROOT / RECORDS).read_text("utf-8"))
    assert held == json.loads(records())
    assert all(is_rule(name) or is_code(name) for name in held)
    assert all(0 <= true <= judged for true, judged in held.values())
    assert record("command-cut-short").share > 0.9
    assert record("a-rule-of-tomorrow") == Record(0, 0)


@pytest.mark.usefixtures("as_judged")
def test_some_rules_are_proven_and_most_are_not() -> None:
    proven = [each.name for each in rules() if unproven(each.name, WHEREVER) is None]
    assert {"command-cut-short", "scheduler-overridden"} <= set(proven)
    assert len(proven) < len(rules()) / 2


SCRIPT = Said(is_error=False, of_engines=False, in_python=False, starts_own=False)
CASES = [
    (Record(9, 9), WHEREVER, None),
    (Record(2, 2), WHEREVER, "warning"),
    (Record(6, 9), WHEREVER, "warning"),
    (Record(6, 9), SCRIPT, None),
    (Record(2, 2), SCRIPT, None),
    (Record(1, 2), SCRIPT, "note"),
    (Record(0, 0), SCRIPT, "note"),
    (Record(3, 9), SCRIPT, "note"),
    (Record(3, 9), Said(False, True, False, False), None),
    (Record(3, 9), Said(False, False, True, False), None),
    (Record(6, 9), Said(False, False, False, True), "note"),
    (Record(9, 9), Said(True, False, False, True), None),
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
        (Record(20, 36), (), {}, "warning"),
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
    assert [is_unproven(each) for each in told] == [expected == "warning"]


def test_a_rule_that_nobody_judged_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suppression, "record", lambda _: Record())
    found = tunec.lint(written(tmp_path, FILES)).diagnostics
    (told,) = (each for each in found if each.id == "unknown-key")
    assert told.severity == "warning"
    assert told.notes[-1] == UNJUDGED


@pytest.mark.parametrize(("starts", "expected"), [("train.py", "note"), ("other.py", "warning")])
def test_a_program_of_the_repository_may_do_otherwise(
    starts: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suppression, "record", lambda _: Record(6, 9))
    trains = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    command = f"python {starts} --output_dir o --lr_scheduler_type constant --warmup_ratio 0.1\n"
    found = tunec.lint(written(tmp_path, {"train.py": trains, "run.sh": command})).diagnostics
    assert [e.severity for e in found if e.id == "warmup-of-a-constant-rate"] == [expected]
