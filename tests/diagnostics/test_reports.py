"""Reports for code hosts: what GitLab and JUnit's readers ask of them."""

import json
from xml.etree import ElementTree as ET

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.reports import render_gitlab, render_junit
from tunec.schemas.source import Span


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
