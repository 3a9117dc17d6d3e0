"""Sweeps: what is written, what it means, and what is refused."""

import pytest

from tunec.compiler.choose.sweep import MOST, NotASweep, combinations, read_sweep


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("data.sequence=2k..32k", ("2048", "4096", "8192", "16384", "32768")),
        ("data.sequence=1000..5000", ("1000", "2000", "4000", "5000")),
        ("data.sequence=4..4", ("4",)),
        ("data.sequence=512..1k", ("512", "1024")),
        ("method.lora.rank=8,16, 64", ("8", "16", "64")),
        ("method=lora", ("lora",)),
    ],
)
def test_values_of_a_sweep(text, values):
    found = read_sweep(text)
    assert found.path == text.partition("=")[0]
    assert found.values == values


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("data.sequence", "must have the form path=values"),
        ("=1,2", "must have the form path=values"),
        ("a=1,,2", "has an empty value"),
        ("a=", "`a` has no value"),
        ("a=8,8", "has a value twice"),
        ("a=32k..2k", "begins above its end"),
        ("a=2k...4k", "is not a range"),
        ("a=0..4", "is not a range"),
        (f"a={','.join(map(str, range(MOST + 1)))}", f"at most {MOST} are swept"),
    ],
)
def test_what_is_no_sweep(text, says):
    with pytest.raises(NotASweep, match=says):
        read_sweep(text)


def test_combinations_are_bounded_and_every_one():
    found = combinations([read_sweep("a=1,2"), read_sweep("b=x,y")])
    assert found == (
        (("a", "1"), ("b", "x")),
        (("a", "1"), ("b", "y")),
        (("a", "2"), ("b", "x")),
        (("a", "2"), ("b", "y")),
    )
    with pytest.raises(NotASweep, match="swept twice"):
        combinations([read_sweep("a=1"), read_sweep("a=2")])
    nine = [read_sweep(f"{name}={','.join(map(str, range(9)))}") for name in "ab"]
    with pytest.raises(NotASweep, match="81 combinations, and at most 64"):
        combinations(nine)
