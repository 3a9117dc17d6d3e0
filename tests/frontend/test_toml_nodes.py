"""TOML to nodes: the values are those of `tomllib`, and every place is where the text has it."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import rows

from tunec.compiler.frontend.nodes import Node, plain, walk
from tunec.compiler.frontend.text import Origin
from tunec.compiler.frontend.toml_nodes import parse_toml

TEXT = (Path(__file__).parent / "config.toml").read_text("utf-8")


def read(text: str) -> Node:
    node, faults = parse_toml(text, Origin("config.toml"))
    assert not faults
    assert node is not None
    return node


def at(node: Node, *path: str | int) -> Node:
    for part in path:
        found = node.child(part)
        assert found is not None, part
        node = found
    return node


def cut(node: Node, *, key: bool = False) -> str:
    span = node.key_span if key else node.span
    assert span is not None
    lines = TEXT.split("\n")
    assert span.line == span.end_line
    return lines[span.line - 1][span.column - 1 : span.end_column - 1]


def test_values_are_those_of_tomllib():
    assert plain(read(TEXT)) == tomllib.loads(TEXT)


@pytest.mark.parametrize(*rows(__file__, "test_places_are_where_the_text_has_them"))
def test_places_are_where_the_text_has_them(path, key, value):
    node = at(read(TEXT), *path)
    assert (cut(node, key=True), cut(node)) == (key, value)


def test_items_of_a_list_over_several_lines_have_their_own_places():
    assert [cut(at(read(TEXT), "resolutions", index)) for index in (0, 1)] == ["512", "768"]


def test_what_is_no_toml_is_one_fault_with_its_place():
    node, (fault,) = parse_toml("a = 1\nb = = 2\n", Origin("config.toml"))
    assert node is None
    assert fault.id == "E0104"
    span = fault.labels[0].span
    assert span is not None
    assert (span.line, span.column) == (2, 5)


def test_a_key_that_stands_twice_is_refused():
    node, (fault,) = parse_toml("a = 1\na = 2\n", Origin("config.toml"))
    assert node is None
    assert "overwrite" in fault.message


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 70 + "]" * 70, ".".join(["a"] * 70) + " = 1", "a = [" + "1," * 100_001 + "]"],
)
def test_depth_and_size_are_bounded(text):
    node, (fault,) = parse_toml(text, Origin("config.toml"))
    assert node is None
    assert fault.id == "E0110"


def test_dates_stay_as_they_are_written():
    assert plain(read("day = 1979-05-27 07:32:00\n")) == {"day": "1979-05-27 07:32:00"}


leaves = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=8),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab-._ \"'", max_size=3), inner)
    ),
    max_leaves=6,
)


def quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(each):08x}" for each in text) + '"'


def written(value) -> str:
    if isinstance(value, dict):
        pairs = (f"{quoted(key)} = {written(each)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[ # first\n" + ",\n".join(map(written, value)) + "]"
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)


@given(st.dictionaries(st.text("ab", min_size=1, max_size=2), values, max_size=4))
def test_any_document_reads_as_tomllib_reads_it(document):
    text = "".join(f"{key} = {written(value)}\n" for key, value in document.items())
    node = read(text)
    assert plain(node) == tomllib.loads(text)
    for path, each in walk(node):
        assert each.span.line >= 1, path


@given(st.text("ab=[]{}.,#\"'\n \\1-:", max_size=30))
def test_any_text_is_read_or_is_a_fault(text):
    node, faults = parse_toml(text, Origin("config.toml"))
    assert (node is None) == bool(faults)
    if node is not None:
        assert {key: str(each) for key, each in plain(node).items()} == {
            key: str(each) for key, each in tomllib.loads(text).items()
        }
