"""Random pairs of files: tunec and the real parsers accept and reject the same ones."""

import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from listed import LISTED
from pairs import Pair, drawn
from readers import Real, asked, linted, rejections
from resolved import differing

from tunec.compiler.lints.lint import Linted

RELEASES = (("0.14.5", "4.44.2"), ("0.18.9", "4.57.6"), ("0.19.8", "5.23.0"))
EXAMPLES = 130
Judged = Sequence[tuple[Pair, Linted, Real]]


@cache
def judged(deepspeed: str, transformers: str) -> Judged:
    """Every pair with what both sides say; another start for each release."""
    pairs = drawn(EXAMPLES, RELEASES.index((deepspeed, transformers)))
    ours = [linted(each, deepspeed, transformers) for each in pairs]
    theirs = asked(pairs, deepspeed, transformers)
    found = zip(pairs, ours, theirs, strict=True)
    return [each for each in found if each[2].is_one_run]


def classed(pair: Pair, ours: Linted, real: Real) -> str | None:
    """`same`, the name of the listed class that a difference is of, or None."""
    rejected = rejections(ours)
    if bool(rejected) == bool(real.refusal):
        return "same"
    fitting = (each for each in LISTED if each.applies(pair, rejected, real.refusal))
    return next((each.name for each in fitting), None)


@pytest.mark.parametrize(("deepspeed", "transformers"), RELEASES)
def test_both_take_and_refuse_the_same_pairs(deepspeed: str, transformers: str) -> None:
    found = judged(deepspeed, transformers)
    unlisted = [_shown(*each) for each in found if classed(*each) is None]
    assert not unlisted, "\n\n".join(unlisted)


@pytest.mark.parametrize(("deepspeed", "transformers"), RELEASES)
def test_the_pairs_are_worth_asking(deepspeed: str, transformers: str) -> None:
    """Some are taken, some are refused, by both programs, and the listed classes stay few."""
    found = judged(deepspeed, transformers)
    said = Counter(classed(*each) for each in found)
    refused = [each.refusal for _, _, each in found if each.refusal]
    assert len(found) > EXAMPLES // 4
    assert len(refused) > len(found) // 5
    assert len(found) - len(refused) > len(found) // 5
    assert any(each.startswith("parse: ") for each in refused)
    assert any(each.startswith("config: ") for each in refused)
    assert sum(count for name, count in said.items() if name != "same") < len(found) // 6


@pytest.mark.parametrize(("deepspeed", "transformers"), RELEASES)
def test_the_values_are_those_that_hold(deepspeed: str, transformers: str) -> None:
    wrong = [
        (differences, pair.faults, pair.files)
        for pair, ours, real in judged(deepspeed, transformers)
        if not set(pair.faults) - {"nothing"}
        if not real.refusal and not rejections(ours)
        if (differences := list(differing(pair, ours.run, real)))
    ]
    assert not wrong, "\n\n".join(str(each) for each in wrong)


def _shown(pair: Pair, ours: Linted, real: Real) -> str:
    said: Any = [f"{each.id}: {each.message}" for each in rejections(ours)]
    said = said or [f"({each.id}: {each.message})" for each in ours.diagnostics]
    return f"put in: {pair.faults}\ntunec: {said}\nreal: {real.refusal}\n{pair.files}"
