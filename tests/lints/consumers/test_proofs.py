"""The real programs agree with the rules: the examples of the pages are given to them."""

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import PROGRAMS, ask_program, example, refusal  # noqa: E402
from proofs import REFUSED, SEEN, Proof  # noqa: E402
from tests.lints.lint_pages import Example, examples  # noqa: E402
from tests.lints.refusals import Refusal, refusals  # noqa: E402

Key = tuple[str, str, int]
FILES = [case for case in refusals() if case.is_asked and case.program in PROGRAMS]
"""The cases of `data/refusals/`: asked with the proofs, for starting a program takes longest."""


def good(rule: str) -> list[Example]:
    """The good examples of a page."""
    return [each for each in examples(rule) if not each.is_bad]


@cache
def answers(program: str, version: str) -> Mapping[Key, Any]:
    """All that one release is asked: importing it takes longer than any question."""
    mine = [
        each for each in (*REFUSED, *SEEN) if (each.program, each.version) == (program, version)
    ]
    asked: dict[Key, Any] = {}
    for proof in mine:
        bad = example(proof.rule, "bad", proof.number)
        asked[proof.rule, "bad", proof.number] = PROGRAMS[program].question(bad)
        for at, each in enumerate(good(proof.rule) if proof.text else ()):
            if set(each.files) == set(bad.files) and each.arguments == bad.arguments:
                asked[proof.rule, "good", at] = PROGRAMS[program].question(each)
    for case in FILES:
        if (case.program, case.version) == (program, version):
            asked[case.id, "bad", 0] = PROGRAMS[program].question(case.bad)
            if case.says:
                asked[case.id, "good", 0] = PROGRAMS[program].question(case.mended)
    found = ask_program(program, version, list(asked.values()))
    return dict(zip(asked, found, strict=True))


def name(proof: Proof) -> str:
    return f"{proof.rule}-{proof.number}-{proof.program}-{proof.version}"


@pytest.mark.parametrize("proof", REFUSED, ids=name)
def test_what_is_called_refused_is_refused(proof: Proof) -> None:
    found = answers(proof.program, proof.version)
    assert proof.text in refusal(found[proof.rule, "bad", proof.number])


@pytest.mark.parametrize("proof", REFUSED, ids=name)
def test_the_good_example_is_not_refused_for_it(proof: Proof) -> None:
    found = answers(proof.program, proof.version)
    for at in range(len(good(proof.rule))):
        answer = found.get((proof.rule, "good", at))
        assert answer is None or proof.text not in refusal(answer)


@pytest.mark.parametrize("proof", SEEN, ids=name)
def test_what_is_called_silent_is_taken_and_shows(proof: Proof) -> None:
    answer = answers(proof.program, proof.version)[proof.rule, "bad", proof.number]
    assert refusal(answer) == ""
    assert proof.shows(answer), answer


@pytest.mark.parametrize("case", FILES, ids=lambda case: case.id)
def test_the_program_agrees_with_a_file(case: Refusal) -> None:
    found = answers(case.program, case.version)
    refused = refusal(found[case.id, "bad", 0])
    if case.says:
        assert case.says in refused
        assert case.says not in refusal(found[case.id, "good", 0])
    else:
        assert refused == ""
