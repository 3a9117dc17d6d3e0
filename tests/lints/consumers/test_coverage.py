"""Every rule is proven by a real program, or listed with the reason why it is not."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER)]

from proofs import ELSEWHERE, NOT_PROVEN, REFUSED, SEEN  # noqa: E402
from tests.lints.refusals import refusals  # noqa: E402

from tunec.compiler.lints.index import rule_names  # noqa: E402

TABLES = {
    "test_trainer.py": ("REFUSED", "SILENT", "DEEPSPEED"),
    "test_peft.py": ("REFUSED", "TAKEN"),
    "test_trl_trainers.py": ("REFUSED",),
}


def tabled() -> set[str]:
    """The rules of the rows of every table of proofs."""
    found = {each.rule for each in (*REFUSED, *SEEN)}
    found |= {case.rule for case in refusals() if case.is_asked and case.says}
    for name, tables in TABLES.items():
        module = pytest.importorskip(f"{name.removesuffix('.py')}")
        found |= {row[0] for table in tables for row in getattr(module, table)}
    return found


def listed() -> list[str]:
    return [name for names in NOT_PROVEN.values() for name in names]


def test_every_rule_is_proven_or_listed() -> None:
    proven = tabled() | set(ELSEWHERE)
    assert set(rule_names()) - proven - set(listed()) == set()


def test_what_is_listed_is_not_proven() -> None:
    """A reason goes when a proof comes, and each rule has one reason."""
    assert set(listed()) & (tabled() | set(ELSEWHERE)) == set()
    assert len(listed()) == len(set(listed()))
    assert set(listed()) | tabled() | set(ELSEWHERE) <= set(rule_names())


def test_most_rules_are_proven() -> None:
    assert len(listed()) < len(rule_names()) * 2 // 5


@pytest.mark.parametrize("rule", ELSEWHERE)
def test_the_test_that_is_named_is_there(rule: str) -> None:
    file, test = ELSEWHERE[rule]
    text = (FOLDER / file).read_text("utf-8")
    assert f"def {test}(" in text
