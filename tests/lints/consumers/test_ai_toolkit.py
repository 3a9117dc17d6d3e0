"""What ai-toolkit's own classes refuse, keep without asking, or replace, where lint says so."""

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import example  # noqa: E402
from test_scripts import asked  # noqa: E402
from tests.lints.refusals import Refusal, refusals  # noqa: E402

from tunec.targets.ai_toolkit.verify import REQUIREMENTS, SCRIPT, question  # noqa: E402

CASES: Final = [each for each in refusals() if each.is_asked and each.program == "ai-toolkit"]


def answer(rule: str, kind: str, number: int = 0) -> dict[str, Any]:
    (text,) = example(rule, kind, number).files.values()
    process = yaml.safe_load(text)["config"]["process"][0]
    (told,) = asked(REQUIREMENTS, SCRIPT, [question(process)])
    return dict(told)


@cache
def verdicts() -> Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Of each case the answers about its bad and its mended form."""
    texts = [each.files["config.yaml"] for case in CASES for each in (case.bad, case.mended)]
    processes = [yaml.safe_load(text)["config"]["process"][0] for text in texts]
    answers = iter(asked(REQUIREMENTS, SCRIPT, [question(each) for each in processes]))
    return {case.id: (next(answers), next(answers)) for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_classes_refuse_settings_together(case: Refusal) -> None:
    """ai-toolkit-config-refused"""
    refused, taken = verdicts()[case.id]
    assert case.says in str(refused["refused"])
    assert taken["refused"] is None


def test_a_class_takes_any_key() -> None:
    """key-unread-by-ai-toolkit: recomputation is on unasked, and no attribute has the key."""
    told = answer("key-unread-by-ai-toolkit", "bad")
    assert told["refused"] is None
    assert "gradient_checkpoint" not in told["values"]["train"]
    assert "save_every" not in told["values"]["train"]
    assert told["values"]["save"]["save_every"] == 250


def test_a_low_rate_is_replaced() -> None:
    """rate-replaced-by-ai-toolkit"""
    assert answer("rate-replaced-by-ai-toolkit", "bad")["rate"] == 1.0
    assert answer("rate-replaced-by-ai-toolkit", "good")["rate"] == 1.0


def test_each_size_is_a_set() -> None:
    """size-listed-twice-in-ai-toolkit"""
    assert answer("size-listed-twice-in-ai-toolkit", "bad")["sets"] == 2
    assert answer("size-listed-twice-in-ai-toolkit", "good")["sets"] == 1
