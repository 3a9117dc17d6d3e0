"""Ranges of releases say what packaging's own specifiers say."""

import pytest
from packaging.specifiers import SpecifierSet

from tunec.compiler.releases import Releases

RANGES = (
    ">=4.40,<5.25",
    "==2.4",
    ">=0.14, <0.20",
    "<=0.19.1",
    "!=1.5",
    ">=4.40,!=4.45.*",
    "",
    "<5",
)
VERSIONS = (
    *("4.39.9", "4.40", "4.40.0", "4.45.1", "5.23.0", "5.25", "5.25.0rc1", "5.0.dev0", "4.99"),
    *("2.4", "2.4.0", "0.14", "0.14.0rc1", "0.19.1", "0.19.1.post1", "0.20.0a1", "1.5", "1.5.0"),
)


@pytest.mark.parametrize("text", RANGES)
def test_a_range_holds_the_same_releases(text):
    ours, theirs = Releases(text), SpecifierSet(text)
    assert str(ours) == text
    for version in VERSIONS:
        assert ours.contains(version) == theirs.contains(version, prereleases=True), version


def test_what_is_no_bound_is_refused():
    with pytest.raises(ValueError, match="is not a version bound"):
        Releases("about 4.40").contains("4.40")
