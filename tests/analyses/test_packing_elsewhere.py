"""Rows are counted as Axolotl and LLaMA-Factory themselves pack, and padding as it is drawn."""

import random

import pytest

from tunec.compiler.analyses.packing import Lengths, first_fit, packed_rows, samples_without_answer
from tunec.compiler.analyses.padding import grouped_length, mean_length, padded_length
from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose


def drawn(seed: int, samples: int, longest: int) -> list[int]:
    pick = random.Random(seed)  # noqa: S311
    return [min(longest, 1 + int(pick.expovariate(4 / longest))) for _ in range(samples)]


CASES = [
    (drawn(1, 300, 400), 400),
    (drawn(2, 900, 64), 512),
    (drawn(3, 50, 100), 100),
    ([1] * 700, 1000),
    ([7, 7, 3], 7),
]


def histogram(order: list[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((length, order.count(length)) for length in set(order)))


def test_llamafactory_fills_knapsacks():
    questions = [{"verb": "rows", "lengths": o, "sequence": s} for o, s in CASES]
    environment = prepare(choose("llamafactory", "0.9.5").requirements)
    answers = ask(environment, "tunec.targets.llamafactory.consumer.packing", questions)
    found = [packed_rows(Lengths(histogram(o)), len(o), s, "knapsack") for o, s in CASES]
    assert [each.count for each in found] == answers
    assert all(each.is_exact for each in found)


def test_axolotl_takes_the_first_row_with_room():
    questions = [{"verb": "rows", "lengths": o, "sequence": s, "most": 200} for o, s in CASES]
    environment = prepare(choose("axolotl", "0.19.0").requirements)
    answers = ask(environment, "tunec.targets.axolotl.consumer.packing", questions)
    assert [first_fit(o, s) for o, s in CASES] == answers
    assert first_fit([1] * 700, 1000) == 4, "200 samples share a row at most"


def test_an_order_that_is_drawn_is_an_estimate_within_a_hundredth():
    order = drawn(4, 30_000, 300)
    found = packed_rows(Lengths(histogram(order)), len(order), 300, "multipack")
    assert not found.is_exact
    assert found.count == pytest.approx(first_fit(order, 300), rel=0.01)


def test_what_axolotl_finds_too_long_is_left_out():
    assert packed_rows(Lengths(((50, 10), (900, 10))), 20, 100, "multipack").count == 5


def test_lengths_by_characters_are_never_exact():
    lengths = Lengths(((12, 2000),), is_estimate=True)
    assert not packed_rows(lengths, 2000, 41, "bfd").is_exact


def test_a_batch_is_as_long_as_its_longest_sample():
    order = drawn(5, 4000, 500)
    pick = random.Random(6)  # noqa: S311
    for micro in (1, 2, 8):
        batches = [max(pick.choices(order, k=micro)) for _ in range(20_000)]
        mean = sum(batches) / len(batches)
        assert padded_length(histogram(order), 500, micro) == pytest.approx(mean, rel=0.02)
    assert padded_length(histogram(order), 500, 1) == pytest.approx(
        mean_length(histogram(order), 500)
    )


def test_grouped_by_length_as_transformers_groups():
    from transformers.trainer_pt_utils import get_length_grouped_indices

    order, micro, accumulation = drawn(7, 3000, 500), 4, 2
    indices = get_length_grouped_indices(order, micro * accumulation)
    batches = [indices[at : at + micro] for at in range(0, len(indices), micro)]
    mean = sum(len(b) * max(order[i] for i in b) for b in batches) / len(order)
    assert grouped_length(histogram(order), 500, micro, accumulation) == pytest.approx(
        mean, rel=0.02
    )


def test_samples_whose_answers_are_cut():
    assert samples_without_answer(Lengths(((9, 3),), answers=((4, 1), (8, 1), (12, 1))), 8) == 2
