"""The installed PEFT refuses what `data/refusals/peft.yaml` says it refuses, and takes the rest."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from peft_runs import question, read  # noqa: E402
from programs import refusal  # noqa: E402
from tests.lints.refusals import Refusal, refusals  # noqa: E402

pytest.importorskip("peft")
CASES = [case for case in refusals() if case.is_asked and case.program == "peft"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_peft_agrees_with_a_file(case: Refusal) -> None:
    refused = refusal(read(question(case.bad)))
    if case.says:
        assert case.says in refused
        assert case.says not in refusal(read(question(case.mended)))
    else:
        assert refused == ""
