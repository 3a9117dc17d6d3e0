"""Mangled inputs of every reader: each is told, in bounds; what once failed is asked again."""

import json
from pathlib import Path

import pytest
from tests.fuzz.case import Case, case_of, faults

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
SEED, SIZE = 2026, 250
BATCHES = (*range(4), *(pytest.param(each, marks=pytest.mark.nightly) for each in range(4, 12)))
"""Fixed cases: a thousand in every run, what more there are nightly."""


@pytest.mark.parametrize("batch", BATCHES)
def test_mangled_inputs_are_told(batch):
    numbers = range(batch * SIZE, (batch + 1) * SIZE)
    wrong = {number: faults(case_of(SEED, number)) for number in numbers}
    assert {f"{SEED}:{number}": each for number, each in wrong.items() if each} == {}


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_what_once_failed_is_told(file):
    assert faults(Case.of_json(json.loads(file.read_text("utf-8")))) == []
