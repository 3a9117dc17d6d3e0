"""A value that only running a file tells: whatever is found stands for every value it may have.

Each example of a rule's page whose trainer's file a class of Python reads is written as the call of
that class. Then one argument after the other is hidden, and whatever is found still has to be found
with the argument that was there.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import pytest
from tests.lints.lint_pages import examples

from tunec.compiler.frontend.nodes import plain
from tunec.compiler.lints.documents import read_texts
from tunec.compiler.lints.index import rule_names
from tunec.compiler.lints.kinds import fields_of
from tunec.compiler.lints.lint import lint_texts
from tunec.targets.registry import REGISTRY

TARGETS = REGISTRY.readable()
_HEADS: Final[Mapping[str, str]] = {
    "hf": "from transformers import Seq2SeqTrainingArguments as C\n",
    "peft": "from peft import LoraConfig as C\n",
    **{
        name.lower(): f"from trl import {name}Config as C\n"
        for name in ("SFT", "DPO", "GRPO", "KTO", "RLOO", "GKD", "PPO")
    },
}
_PARTS: Final = 8
Case = tuple[str, dict[str, Any], dict[str, str]]


@cache
def _cases() -> tuple[Case, ...]:
    """Of each example that can be written so: its kind, its arguments, the files beside it."""
    return tuple(_read())


def _read() -> Iterator[Case]:
    for name in rule_names():
        for each in examples(name):
            reading = read_texts(each.files, TARGETS)
            mine = [d for d in reading.documents if d.kind in _HEADS and not d.is_view]
            if len(mine) == 1 and mine[0].format in ("yaml", "json"):
                found = plain(mine[0].root)
                known = fields_of(mine[0].kind)
                given = {key: value for key, value in found.items() if key in known}
                others = {name: t for name, t in each.files.items() if name != mine[0].name}
                yield mine[0].kind, given, others


def _found(case: Case, hidden: str = "", more: str = "") -> set[str]:
    kind, given, others = case
    words = (f"{key}={'f()' if key == hidden else repr(value)}, " for key, value in given.items())
    text = f"{_HEADS[kind]}x = C({''.join(words)}{more})\n"
    found = lint_texts({**others, "train.py": text}, TARGETS).diagnostics
    return {each.id for each in found if each.severity != "note"}


@pytest.mark.parametrize("part", range(_PARTS))
def test_nothing_is_found_that_another_value_would_not_show(part: int) -> None:
    cases = _cases()[part::_PARTS]
    assert len(cases) > 30
    wrong = {
        (hidden or "**more", str(case), rule)
        for case in cases
        for found in (_found(case),)
        for hidden in (*case[1], "")
        for rule in _found(case, hidden, "" if hidden else "**more") - found
    }
    assert not wrong


def test_much_is_found_in_python_too() -> None:
    """What is hidden is hidden from something: most examples are as wrong as calls of Python."""
    found = [_found(case) for case in _cases()]
    assert len([each for each in found if each]) > 100
