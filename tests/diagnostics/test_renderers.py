"""Renderers, and reports for code hosts: each is in the form that its reader expects."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft4Validator

from tunec.compiler.diagnostics import formats
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label, Term
from tunec.compiler.diagnostics.formats import render_command
from tunec.compiler.diagnostics.reports import render_gitlab, render_junit
from tunec.compiler.diagnostics.terminal import (
    cells,
    printable,
    render,
    render_all,
    show,
    sum_lines,
    summary,
)
from tunec.schemas.source import Span

SPEC = "tunec: 1\ntrain:\n  epochs: 3\n  epochs: 5\n"
SOURCES = {"spec.yaml": SPEC, "base.yaml": "a: 1\n"}
TWICE = Diagnostic(
    "E0107",
    "error",
    "the key `epochs` is given twice",
    (
        Label("given again here", Span("spec.yaml", 4, 3, 4, 9), "train.epochs"),
        Label("first given here", Span("spec.yaml", 3, 3, 3, 9), "train.epochs", primary=False),
    ),
    ("most readers keep the last one",),
    "keep one of them",
    Fix((Edit(Span("spec.yaml", 4, 1, 5, 1), ""),), "unsafe"),
)


def at(line, column, end_line, end_column, file="spec.yaml", text="here", **more):
    label = Label(text, Span(file, line, column, end_line, end_column), **more)
    return Diagnostic("some-lint", "warning", "a thing", (label,))


# ── terminal ─────────────────────────────────────────────────────────────────────────────────────


def test_terminal():
    assert render(TWICE, SOURCES) == (
        "error[E0107]: the key `epochs` is given twice\n"
        " --> spec.yaml:4:3\n"
        "  │\n"
        "3 │   epochs: 3\n"
        "  │   ------ first given here\n"
        "4 │   epochs: 5\n"
        "  │   ^^^^^^ given again here\n"
        "  │\n"
        "  = note: most readers keep the last one\n"
        "  = help: keep one of them\n"
    )


def test_terminal_with_a_sum():
    terms = (Term("weights", 15.0 * 2**30), Term("optimizer states", 2.5 * 2**30))
    text = render(Diagnostic("E0701", "error", "it does not fit", sum=terms, help="use less"), {})
    assert text == (
        "error[E0701]: it does not fit\n"
        "  = sum: weights           15.00 GiB\n"
        "         optimizer states   2.50 GiB\n"
        "         ───────────────────────\n"
        "         total             17.50 GiB\n"
        "  = help: use less\n"
    )


def test_labels_of_two_files():
    found = Diagnostic(
        "E0308",
        "error",
        "both",
        (
            Label("given here", Span("spec.yaml", 2, 1, 2, 6)),
            Label("and here", Span("base.yaml", 1, 1, 1, 2), primary=False),
        ),
    )
    assert render(found, SOURCES).splitlines()[1:] == [
        " --> spec.yaml:2:1",
        "  │",
        "2 │ train:",
        "  │ ^^^^^ given here",
        " ::: base.yaml:1:1",
        "  │",
        "1 │ a: 1",
        "  │ - and here",
    ]


def test_lines_that_are_far_apart():
    source = "\n".join(f"line{n}" for n in range(1, 30))
    found = Diagnostic(
        "x",
        "note",
        "m",
        (Label("", Span("f", 20, 1, 20, 5)), Label("b", Span("f", 3, 1, 3, 5), primary=False)),
    )
    assert "\n...\n" in render(found, {"f": source})
    assert "\n20 │ line20\n   │ ^^^^\n" in render(found, {"f": source})


def test_a_place_in_an_unknown_file_is_named():
    assert render(at(7, 2, 7, 5, file="gone.yaml"), {}) == (
        "warning[some-lint]: a thing\n --> gone.yaml:7:2\n  │ here\n"
    )


def test_a_place_behind_the_end_is_named_only():
    assert "9" in render(at(9, 1, 9, 2), SOURCES)


def test_an_empty_place_has_one_mark():
    assert "  │        ^ here\n" in render(at(2, 8, 2, 8), {"spec.yaml": "a: 1\ntrain:  \n"})


def test_a_place_of_several_lines_is_marked_to_the_end_of_the_first():
    text = render(at(2, 1, 4, 3), SOURCES)
    assert "2 │ train:\n  │ ^^^^^^ here\n" in text


@pytest.mark.parametrize(
    ("line", "span", "shown", "start", "width"),
    [
        ("a: b", (4, 5), "a: b", 3, 1),
        ("\ta: b", (5, 6), "    a: b", 7, 1),
        ("名前: x", (5, 6), "名前: x", 6, 1),
        ("名前: x", (1, 3), "名前: x", 0, 4),
        ("e\u0301: x", (5, 6), "e\u0301: x", 3, 1),
        ("a\x1b[31m: x", (9, 10), "a␛[31m: x", 8, 1),
        ("a\u202eb", (1, 2), "a\ufffdb", 0, 1),
        ("x" * 300 + "HERE" + "y" * 300, (301, 305), None, 41, 4),
        ("x" * 10 + "H" * 500, (11, 511), None, 10, 120),
    ],
)
def test_what_is_shown_of_a_line(line, span, shown, start, width):
    found = show(Span("f", 1, span[0], 1, span[1]), line)
    assert found.start == start
    assert found.width == width
    assert shown is None or found.text == shown
    assert cells(found.text) < 200


def test_color_is_asked_for():
    colored = render(TWICE, SOURCES, color=True)
    assert "\x1b[1;31merror[E0107]\x1b[0m" in colored
    plain = colored
    for style in ("\x1b[0m", "\x1b[1m", "\x1b[1;31m", "\x1b[1;34m"):
        plain = plain.replace(style, "")
    assert plain == render(TWICE, SOURCES)


@given(st.text(max_size=40), st.integers(1, 5), st.integers(1, 20), st.text(max_size=10))
def test_nothing_of_a_file_moves_the_terminal(source, line, column, word):
    span = Span(word, line, column, line, column + 3)
    found = Diagnostic("x", "note", word, (Label(word, span),), (word,), word)
    text = render(found, {word: source})
    assert "\x1b" not in text
    assert all(each == "\n" or printable(each) == each for each in text)


def test_all_and_their_number():
    text = render_all([TWICE, at(1, 1, 1, 2), TWICE], SOURCES)
    assert text.endswith("\n2 errors, 1 warning\n")
    assert summary([]) == ""
    assert render_all([], {}) == ""


def test_what_differs_in_its_place_alone_is_shown_once() -> None:
    every = [at(1, 1, 1, 2), TWICE, at(2, 1, 2, 2), at(3, 1, 3, 2)]
    text = render_all(every, SOURCES, folds=True)
    assert text.count(at(1, 1, 1, 2).message) == 1 + (TWICE.message == at(1, 1, 1, 2).message)
    file = at(2, 1, 2, 2).file
    assert f"the same at {file}:2, {file}:3" in text
    assert text.endswith(f"{summary(every)}\n")


# ── sums ─────────────────────────────────────────────────────────────────────────────────────────


def test_sums():
    assert list(sum_lines(())) == []
    assert list(sum_lines((Term("one", 512.0),))) == ["one  512 B"]
    assert list(sum_lines((Term("a", 3, "samples"), Term("bb", 1234.5, "samples")))) == [
        "a         3 samples",
        "bb  1,234.5 samples",
    ]
    assert list(sum_lines((Term("a", 2**20), Term("b", 2**20))))[-1] == "total  2.0 MiB"
    mixed = list(sum_lines((Term("a", 2**20), Term("b", 3, "steps"))))
    assert mixed == ["a  1.0 MiB", "b    3 steps"]


# ── JSON, GitHub ─────────────────────────────────────────────────────────────────────────────────


def test_json():
    (found,) = json.loads(formats.render_json([TWICE]))
    assert found == TWICE.to_json()
    assert found["labels"][0]["path"] == "train.epochs"
    assert found["fix"]["applicability"] == "unsafe"
    assert formats.render_json([]) == "[]\n"


def test_github():
    assert render_command(TWICE) == (
        "::error file=spec.yaml,line=4,endLine=4,col=3,endColumn=8,title=E0107::"
        "the key `epochs` is given twice%0Anote: most readers keep the last one"
        "%0Ahelp: keep one of them\n"
    )
    assert render_command(at(1, 1, 2, 2)).startswith(
        "::warning file=spec.yaml,line=1,endLine=2,title=some-lint::"
    )
    assert render_command(Diagnostic("x", "note", "50%\r\n")) == "::notice title=x::50%25%0D%0A\n"
    hostile = at(1, 1, 1, 2, file="a,b:c\n::error::.yaml")
    assert "file=a%2Cb%3Ac%0A%3A%3Aerror%3A%3A.yaml," in render_command(hostile)


@given(st.text(max_size=30))
def test_a_message_makes_no_second_command(text):
    found = render_command(Diagnostic("x", "error", text, (Label("", Span(text, 1, 1, 1, 1)),)))
    assert found.count("\n") == 1
    assert "\r" not in found


# ── SARIF ────────────────────────────────────────────────────────────────────────────────────────

_SCHEMA = Path(__file__).parent / "data/sarif-2.1.0/sarif-schema-2.1.0.json"
SARIF = Draft4Validator(
    json.loads(_SCHEMA.read_text("utf-8")), format_checker=Draft4Validator.FORMAT_CHECKER
)
"""The schema of the OASIS standard itself."""


@pytest.mark.parametrize(
    "found",
    [
        [],
        [TWICE],
        [TWICE, at(1, 1, 1, 2), Diagnostic("x", "note", "m")],
        [at(1, 1, 1, 1, file="/abs/ü x.yaml"), at(1, 1, 2, 1, file="<command line>")],
    ],
)
def test_sarif(found):
    log = json.loads(formats.render_sarif(found, "1.2.3"))
    errors = [f"{e.json_path}: {e.message}" for e in SARIF.iter_errors(log)]
    assert not errors
    (run,) = log["runs"]
    assert len(run["results"]) == len(found)
    rules = run["tool"]["driver"]["rules"]
    for result, each in zip(run["results"], found, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == each.id
        assert result["message"]["text"].startswith(each.message)


def test_sarif_says_where_and_how_to_mend():
    (result,) = formats.sarif_log([TWICE], "0")["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "spec.yaml"
    assert place["region"] == {"startLine": 4, "startColumn": 3, "endLine": 4, "endColumn": 9}
    assert result["relatedLocations"][0]["message"]["text"] == "first given here"
    change = result["fixes"][0]["artifactChanges"][0]["replacements"][0]
    assert change["insertedContent"] == {"text": ""}
    absolute = formats.sarif_log([at(1, 1, 1, 1, file="/a b")], "0")["runs"][0]["results"][0]
    uri = absolute["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "file:///a%20b"


def found(severity, line, message="it is <wrong> & \x1b odd", file="a/ds.json"):
    label = Label("here", Span(file, line, 1, line, 5), "zero.stage")
    return Diagnostic("a-rule", severity, message, (label,), help="write 2")


FOUND = (
    found("error", 3),
    found("error", 9),
    found("warning", 4),
    Diagnostic("E0201", "note", "x"),
)


def test_gitlab_asks_for_these_fields_and_for_fingerprints_of_their_own():
    every = json.loads(render_gitlab(FOUND))
    assert [each["severity"] for each in every] == ["major", "major", "minor", "info"]
    assert {tuple(each) for each in every} == {
        ("description", "check_name", "fingerprint", "severity", "location")
    }
    assert every[0]["location"] == {"path": "a/ds.json", "lines": {"begin": 3}}
    assert len({each["fingerprint"] for each in every[:2]}) == 2
    moved = json.loads(render_gitlab((found("error", 30),)))
    assert moved[0]["fingerprint"] == every[0]["fingerprint"]
    assert json.loads(render_gitlab(())) == []


def test_junit_counts_what_fails_and_names_clean_files():
    root = ET.fromstring(render_junit(FOUND, ("a/ds.json", "b.yaml"), ("error",)))  # noqa: S314
    assert root.attrib == {"tests": "5", "failures": "2", "errors": "0"}
    cases = root.findall("./testsuite/testcase")
    assert len(cases) == 5
    failed = [each.find("failure") for each in cases if each.find("failure") is not None]
    assert failed[0].attrib["message"] == "it is <wrong> & \ufffd odd"
    assert failed[0].text.endswith("help: write 2")
    assert cases[-1].attrib == {"classname": "b.yaml", "name": "tunec lint"}
    strict = render_junit(FOUND, (), ("error", "warning"))
    assert 'failures="3"' in strict
