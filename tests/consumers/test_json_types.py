"""Annotations as JSON Schema and values as JSON."""

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Optional, Union

import pytest

from tunec.compiler.consumers.json_types import json_type, plain


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: Colour


class Opaque:
    pass


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (bool, {"type": "boolean"}),
        (Path, {"type": "string"}),
        (Any, {}),
        (Opaque, None),
        (Opaque | None, None),
        (int | None, {"type": ["integer", "null"]}),
        (Optional[Union[dict, str]], {"type": ["null", "object", "string"]}),  # noqa: UP007, UP045
        (Colour, {"enum": ["blue", "red"]}),
        (Colour | str, {"enum": ["blue", "red"]}),
        (Literal["b", "a"], {"enum": ["a", "b"]}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (list[Opaque], {"type": "array"}),
        (
            list[int] | None,
            {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        ),
    ],
)
def test_annotations(annotation, expected):
    assert json_type(annotation) == expected


def test_a_script_may_know_more():
    known = {"type": "object", "title": "opaque"}
    found = json_type(list[Opaque], lambda kind: known if kind is Opaque else None)
    assert found == {"type": "array", "items": known}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (Colour.RED, "red"),
        (Path("a/b"), "a/b"),
        ({"b", "a"}, ["a", "b"]),
        ((1, 2.5), [1, 2.5]),
        ({1: Colour.BLUE}, {"1": "blue"}),
        (Point(1, Colour.RED), {"x": 1, "y": "red"}),
    ],
)
def test_values(value, expected):
    assert plain(value) == expected


def test_a_number_of_a_class_of_its_own_is_a_number():
    class Pretty(int):
        def __repr__(self) -> str:
            return "many"

    assert type(plain(Pretty(5))) is int
