"""Packed rows are counted as TRL packs them."""

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from trl import pack_dataset

from tunec.compiler.analyses.packing import (
    Lengths,
    answered_rows,
    cut_tokens,
    packed_rows,
    short_rows,
)

STRATEGIES = ("bfd", "bfd_split", "wrapped")


def histogram(order: list[int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((length, order.count(length)) for length in set(order)))


def packed(order: list[int], sequence: int, strategy: str) -> int:
    data = Dataset.from_dict({"input_ids": [[1] * length for length in order]})
    return len(pack_dataset(data, sequence, strategy))


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=200), st.integers(4, 40))
def test_few_samples_are_packed_alike_in_any_order(strategy, order, sequence):
    found = packed_rows(Lengths(histogram(order)), len(order), sequence, strategy)
    assert found.is_exact
    assert found.count == packed(order, sequence, strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("samples", [1000, 1001, 2500])
def test_many_samples_are_packed_by_the_thousand(strategy, samples):
    order = [1 + (7 * number + number**2) % 53 for number in range(samples)]
    lengths = Lengths(histogram(order), tuple(order))
    found = packed_rows(lengths, samples, 32, strategy)
    assert found.is_exact
    assert found.count == packed(order, 32, strategy)
    rough = packed_rows(Lengths(histogram(order)), samples, 32, strategy)
    assert rough.is_exact == (samples == 1000)
    assert rough.count == pytest.approx(found.count, rel=0.05)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_samples_of_one_length_are_known_however_many_they_are(strategy):
    found = packed_rows(Lengths(((12, 2000),)), 2000, 41, strategy)
    assert found.is_exact
    assert found.count == packed([12] * 2000, 41, strategy)


def test_two_thousand_samples_of_twelve_hundred_tokens():
    assert packed_rows(Lengths(((1200, 2000),)), 2000, 4096, "bfd").count == 668


def test_a_mean_is_an_estimate():
    found = packed_rows(Lengths(((1200, 1),), is_mean=True), 2000, 4096, "bfd")
    assert (found.count, found.is_exact) == (668, False)


def test_a_histogram_of_a_part_is_an_estimate():
    found = packed_rows(Lengths(((1200, 50),)), 2000, 4096, "bfd")
    assert (found.count, found.is_exact) == (668, False)


def test_tokens_beyond_the_sequence():
    assert cut_tokens(Lengths(((100, 5), (300, 2), (450, 1))), 250) == (3, 300)


def test_one_stream_of_all_keeps_its_last_tokens_back():
    """llama-cookbook 0.0.5.post1 data/concatenator.py: a row is made once there is more than it."""
    lengths = Lengths(((8, 16),))
    counts = [packed_rows(lengths, 16, size, "concatenated").count for size in (31, 32, 64, 128)]
    assert counts == [4, 3, 1, 0]


def test_samples_that_are_too_long_are_left_out_of_the_rows():
    lengths = Lengths(((100, 5), (300, 2), (450, 1)))
    assert short_rows(lengths, 8, 300) == (rows := short_rows(lengths, 8, 449))
    assert (rows.count, rows.is_exact) == (7, True)
    assert short_rows(lengths, 80, 250).count == 50
    assert not short_rows(lengths, 80, 250).is_exact
    assert not short_rows(Lengths(((100, 8),), is_mean=True), 8, 50).is_exact


def test_samples_without_an_answer_are_left_out_of_the_rows():
    lengths = Lengths(((100, 5), (300, 3)), answers=((90, 6), (260, 2)))
    assert (found := answered_rows(lengths, 8, 260)) == answered_rows(lengths, 8, 91)
    assert (found.count, found.is_exact) == (6, True)
    assert answered_rows(lengths, 8, 261).count == 8
    assert answered_rows(lengths, 80, 200).count == 60
    assert not answered_rows(lengths, 80, 200).is_exact
