"""Documents to nodes: the same data as the real readers give, and a place for every value."""

import json
import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import rows, table

from tunec.compiler.frontend import yaml_nodes
from tunec.compiler.frontend.nodes import MAX_DEPTH, MAX_NODES, descend, place, plain, walk
from tunec.compiler.frontend.parse import parse
from tunec.schemas.source import text_of

TABLES = table(__file__)

LOADERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def each_loader(request, monkeypatch):
    monkeypatch.setattr(yaml_nodes, "_LOADER", request.param)


def load(text):
    """What PyYAML makes of a text, with the scanner that is in use."""
    return yaml.load(text, Loader=yaml_nodes._LOADER)  # noqa: S506  a safe loader


def same(one, other) -> bool:
    """Equal, types included; NaN equals NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = list(zip(one, other, strict=False))
        keys = len(one) == len(other) and all(same_key(*pair) for pair in pairs)
        return keys and all(same(one[mine], other[theirs]) for mine, theirs in pairs)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other


def same_key(mine, theirs) -> bool:
    """Keys are text here; a whole number, which other programs' files have, is as it is written."""
    return mine == theirs or (type(theirs) is int and load(mine) == theirs)


def codes(text, format="yaml"):
    node, found = parse(text, "f", format)
    return node, [each.id for each in found]


# ── YAML as PyYAML reads it ──────────────────────────────────────────────────────────────────────

SCALARS = TABLES["SCALARS"]


@pytest.mark.parametrize("text", SCALARS)
@pytest.mark.usefixtures("each_loader")
def test_scalars_are_those_of_pyyaml(text):
    node, found = parse(f"- {text}\n", "f", "yaml")
    try:
        expected = load(f"- {text}\n")
    except (yaml.YAMLError, ValueError):
        assert [each.id for each in found] == ["E0112"]
        return
    assert not found
    assert same(plain(node), expected)


@pytest.mark.parametrize(*rows(__file__, "test_scalars_of_a_spec_are_of_the_core_schema"))
def test_scalars_of_a_spec_are_of_the_core_schema(text, value):
    node, found = parse(f"x: {text}\n" if text != "-" else "x: '-'\n", "f", "spec")
    assert not found
    assert same(node.child("x").value, value)


DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(DATA, st.booleans())
def test_dumped_yaml_is_read_back(data, flow):
    text = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=True, sort_keys=False)
    node, found = parse(text, "f", "yaml")
    assert not found, text
    assert same(plain(node), load(text))


YAMLISH = st.lists(
    st.sampled_from(
        [
            *"abx:-?,[]{}#&*!|>'\"%@` \n\t.0123",
            "\n  ",
            "- ",
            ": ",
            "<<: ",
            "*a",
            "&a ",
            "!!str ",
            "!!int ",
            "!!python/name:os.x ",
            "---\n",
            "...\n",
            "\\",
            "é",
            "\u2028",
            "\r\n",
            "\ufeff",
            "1e-4",
            "yes",
            "~",
            "${a}",
            "# tunec: allow(x) y\n",
            "extends: ",
            "a: ",
            "b: ",
        ]
    ),
    max_size=40,
).map("".join)


@given(YAMLISH)
def test_any_text_is_read_as_pyyaml_reads_it_or_refused(text):
    node, found = parse(text, "f", "yaml")
    if found:
        assert all(each.severity == "error" and each.primary.span is not None for each in found)
        return
    assert same(plain(node), load(text))


@given(YAMLISH)
def test_what_pyyaml_refuses_is_refused(text):
    try:
        load(text)
    except Exception:  # noqa: BLE001  whatever it raises
        assert codes(text)[1]


@given(st.binary(max_size=200), st.sampled_from(["yaml", "json", "spec"]))
def test_bytes_never_raise(content, format):
    node, found = parse(content, "f", format)
    assert node is not None or found


@given(DATA)
def test_the_span_of_a_leaf_is_its_text(data):
    text = yaml.safe_dump({"root": data}, allow_unicode=True)
    node, _ = parse(text, "f", "yaml")
    for _, each in walk(node):
        if each.is_leaf:
            written = text_of(each.span, text)
            assert each.written in (None, written) or "\n" in written
            again, found = parse(written, "f", "yaml")
            assert not found
            if not written.startswith(("|", ">")) and "\n" not in written:
                assert same(plain(again), each.value)


def test_keys_and_values_have_places():
    text = "a:\n  b: [1, {c: 'x y'}]\n  d:\n"
    node, _ = parse(text, "f.yaml", "yaml")
    inner = descend(node, ("a", "b", 1, "c"))[0]
    assert text_of(inner.span, text) == "'x y'"
    assert text_of(inner.key_span, text) == "c"
    where = {path: place(each) for path, each in walk(node)}
    assert str(where["a", "b", 1, "c"]) == "f.yaml:2:14"
    assert text_of(where[("a",)], text) == "a", "a block is shown by its key"
    assert text_of(where["a", "d"], text) == "d", "an empty value is shown by its key"


def test_anchors_tags_and_merges():
    text = "base: &b {x: 1, y: 2}\none:\n  <<: *b\n  y: 3\ntwo:\n  <<: [*b, {z: 4}]\nt: !!str 5\n"
    node, found = parse(text, "f", "yaml")
    assert not found
    assert plain(node) == load(text), "PyYAML 6.0.3 and 6.0.4 order what is merged differently"
    assert descend(node, ("one", "x"))[0].span.line == 1, "where the value is written"
    assert descend(node, ("one", "y"))[0].span.line == 4
    assert text_of(node.child("t").span, text) == "5"
    assert text_of(node.child("base").span, text) == "{x: 1, y: 2}"


@pytest.mark.parametrize("format", ["yaml", "spec"])
@pytest.mark.usefixtures("each_loader")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\na: 2", ["E0107"]),
        ("a: 1\n<<: {a: 1}\n<<: {b: 2}", ["E0107"]),
        ("1.5: a", ["E0108"]),
        ("? [a]\n: b", ["E0108"]),
        ("a: !!python/object/new:x {}", ["E0109"]),
        ("a: !!map x", ["E0109"]),
        ("a: !!int {}", ["E0109"]),
        ("a: !local x", ["E0109"]),
        ("[" * 100_000, ["E0110"]),
        ("- " * 5000, ["E0110"]),
        ("? " * 5000, ["E0110"]),
        ("a: *b", ["E0111"]),
        ("a: &b [*b]", ["E0111"]),
        ("a: &b 1\nc: &b 2", ["E0111"]),
        ("a: !!float x", ["E0112"]),
        ("a: " + "9" * 5000, ["E0112"]),
        ("a: 1\n---\nb: 2", ["E0113"]),
        ("<<: 1", ["E0114"]),
        ("<<: [1]", ["E0114"]),
        ("a:\n\tb: 1", ["E0106"]),
        ("a: [", ["E0104"]),
        ("a: {b: ${c}}", ["E0104"]),
        ("%YAML 3.0\n---\na: 1", ["E0104"]),
        ("a: \x07", ["E0103"]),
        ("a: \ud800", ["E0103"]),
        ("x" * (1 << 20) + "y", ["E0101"]),
    ],
)
def test_hostile_yaml(text, expected, format):
    assert codes(text, format)[1] == expected


def test_surrogates_made_by_escapes_are_refused(monkeypatch):
    monkeypatch.setattr(yaml_nodes, "_LOADER", yaml.SafeLoader)
    assert codes('a: "\\ud800"')[1] == ["E0112"]


def test_encodings():
    assert codes(b"\xff\xfea\x00:\x00")[1] == ["E0102"]
    assert codes("é: 1".encode("latin-1"))[1] == ["E0102"]
    node, found = codes(b"\xef\xbb\xbfa: 1")
    assert not found
    assert plain(node) == {"a": 1}
    assert str(node.child("a").key_span) == "f:1:1"
    assert codes(b'\xef\xbb\xbf{"a": 1}', "json")[1] == ["E0105"], "json.load refuses it too"
    _, found = parse(b"ok: 1\n caf" + b"\xe9", "f", "yaml")
    assert str(found[0].primary.span) == "f:2:5"


def test_aliases_count_as_what_they_stand_for():
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert codes("\n".join(rows))[1] == ["E0110"]
    deep = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 100))])
    assert codes(deep)[1] == ["E0110"]
    assert MAX_DEPTH < 100


def test_many_values_are_refused():
    assert codes("[" + "1," * MAX_NODES + "]")[1] == ["E0110"]
    assert codes("[" + "1," * MAX_NODES + "1]", "json")[1] == ["E0110"]


def test_empty_documents():
    for text in ("", "\n", "# only\n", "---\n", "---\n...\n"):
        node, found = codes(text)
        assert not found
        assert node.is_leaf
        assert node.value is None


# ── JSON as Python's json module reads it ────────────────────────────────────────────────────────


@given(DATA, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_dumped_json_is_read_back(data, indent, ascii_only):
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_only)
    node, found = parse(text, "f", "json")
    assert not found
    assert same(plain(node), json.loads(text))
    for _, each in walk(node):
        assert same(json.loads(text_of(each.span, text)) if each.is_leaf else None, each.value)


JSONISH = st.lists(
    st.sampled_from(
        [
            *'{}[]",:.-+e0123 \n\t\\/ux',
            "true",
            "NaN",
            "-Infinity",
            "null",
            '"a"',
            '"a":',
            "// x\n",
            "/* x */",
            "'",
            "None",
            "é",
            "\u2028",
            "1e5",
            "0x1",
            "\\u00e9",
        ]
    ),
    max_size=25,
).map("".join)


@given(JSONISH)
def test_any_text_is_read_as_json_reads_it_or_refused(text):
    node, found = parse(text, "f", "json")
    try:
        expected = json.loads(text)
    except ValueError:
        assert found
        return
    if {each.id for each in found} <= {"E0107"}:
        assert same(plain(node), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["E0105"]),
        ("[1,]", ["E0105"]),
        ("[1 2]", ["E0105"]),
        ("{,}", ["E0105"]),
        ("{'a': 1}", ["E0105"]),
        ('{"a": 1} // x', ["E0105"]),
        ('{"a": 1, "a": 2, "a": 3}', ["E0107", "E0107"]),
        ("[" * 1000, ["E0110"]),
        ("9" * 5000, ["E0112"]),
        ('"\\ud800"', ["E0112"]),
        ('"\x00"', ["E0103"]),
        ("nul", ["E0105"]),
        ("+1", ["E0105"]),
        ("01", ["E0105"]),
        ("[1, // a\n 2, /* b */ ]", ["E0105", "E0105", "E0105"]),
    ],
)
def test_hostile_json(text, expected):
    assert codes(text, "json")[1] == expected


def test_a_text_may_begin_anywhere_in_a_file():
    node, found = parse("[1,\n 2]", "<command line>", "spec", line=3, column=9)
    assert not found
    assert str(node.items[0].span) == "<command line>:3:10"
    assert str(node.items[1].span) == "<command line>:4:2"
