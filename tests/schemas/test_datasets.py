"""Rows of public data sets, and what plans and trainers make of them."""

import pytest

from tunec.schemas.datasets.catalogue import dataset, dataset_names, public_dataset, samples_in


def test_rows_are_in_order():
    names = list(dataset_names())
    assert names == sorted(names, key=str.lower)


@pytest.mark.parametrize("name", dataset_names())
def test_a_row_can_be_read(name):
    row = dataset(name)
    assert row.source
    assert row.columns or row.splits or row.configs
    counts = [*row.splits.values(), *(n for each in row.configs.values() for n in each.values())]
    assert all(count is None or count > 0 for count in counts)


def test_names_are_found_in_any_case():
    assert public_dataset("Tatsu-Lab/Alpaca") == dataset("tatsu-lab/alpaca")
    with pytest.raises(LookupError):
        dataset("tatsu-lab/alpaka")


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("tatsu-lab/alpaca", 52002),
        ("openai/gsm8k:main", 7473),
        ("openai/gsm8k:main:test", 1319),
        ("openai/gsm8k", None),
        ("HuggingFaceH4/ultrachat_200k", None),
        ("HuggingFaceH4/ultrachat_200k::train_sft", 207865),
        ("tatsu-lab/alpaca::train[:1000]", 1000),
        ("tatsu-lab/alpaca::train[:10%]", None),
        ("./tatsu-lab/alpaca", None),
        ("tatsu-lab/alpaca.jsonl", None),
        ("somebody/alpaca", None),
    ],
)
def test_samples_of_a_part(path, count):
    assert samples_in(path) == count
