"""How a path of training data is written says where it lies."""

import pytest

from tunec.schemas.data_paths import data_kind, is_local


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("train.jsonl", "file"),
        ("../data/Train.JSON", "file"),
        ("~/rows.csv", "file"),
        ("/data/part-0.parquet", "file"),
        ("rows.arrow", "file"),
        ("corpus.txt", "file"),
        (".", "directory"),
        ("../data", "directory"),
        ("/data/chat", "directory"),
        ("~/chat", "directory"),
        ("photos/", "directory"),
        ("trl-lib/Capybara", "name"),
        ("imdb", "name"),
        ("org/set.v1.5", "name"),
        ("https://example.org/train.jsonl", "url"),
        ("s3://bucket/train.jsonl", "url"),
    ],
)
def test_the_form_says_the_kind(path, kind):
    """Suffix, beginning and end tell; nothing is looked up."""
    assert data_kind(path) == kind
    assert is_local(path) == (kind in ("file", "directory"))
