"""Diagnostics for the pages of code hosts: GitLab's code quality report, and JUnit's XML.

GitLab Docs, "Code Quality", "Code Quality report format": `description`, `check_name`,
`fingerprint`, `severity` and `location`, whose path is relative. JUnit: the XML that Ant's task
writes, which GitLab, Jenkins and others read (github.com/testmoapp/junitxml lists its elements).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Severity
from tunec.compiler.diagnostics.wording import json_text

_SEVERITIES: Final[Mapping[Severity, str]] = {"error": "major", "warning": "minor", "note": "info"}
_NOWHERE: Final = "."


def render_gitlab(diagnostics: Iterable[Diagnostic]) -> str:
    """All diagnostics as one code quality report."""
    seen: dict[str, int] = {}
    return json_text([_issue(each, seen) for each in diagnostics]) + "\n"


def _issue(diagnostic: Diagnostic, seen: dict[str, int]) -> dict[str, Any]:
    span = diagnostic.span
    return {
        "description": _description(diagnostic),
        "check_name": diagnostic.id,
        "fingerprint": _fingerprint(diagnostic, seen),
        "severity": _SEVERITIES[diagnostic.severity],
        "location": {
            "path": span.file if span else _NOWHERE,
            "lines": {"begin": span.line if span else 1},
        },
    }


def _description(diagnostic: Diagnostic) -> str:
    return f"{diagnostic.message}; {diagnostic.help}" if diagnostic.help else diagnostic.message


def _fingerprint(diagnostic: Diagnostic, seen: dict[str, int]) -> str:
    """The identity of a finding, which stays the same if the finding moves to another line."""
    first = diagnostic.primary
    parts = (diagnostic.id, diagnostic.file, first.path if first else "", diagnostic.message)
    text = "\0".join(parts)
    seen[text] = seen.get(text, 0) + 1
    return sha256(f"{text}\0{seen[text]}".encode()).hexdigest()


def render_junit(
    diagnostics: Iterable[Diagnostic], files: Sequence[str], failing: Sequence[Severity]
) -> str:
    """One test case per finding, and one that passes for each file without findings.

    Findings of the severities in `failing` fail; others pass, with their text as output.
    """
    found = list(diagnostics)
    failures = sum(1 for each in found if each.severity in failing)
    clean = [each for each in files if each not in {one.file for one in found}]
    counts = {"tests": str(len(found) + len(clean)), "failures": str(failures), "errors": "0"}
    root = Element("testsuites", counts)
    suite = SubElement(root, "testsuite", {"name": "tunec lint", **counts})
    for each in found:
        _case(suite, each, is_failing=each.severity in failing)
    for name in clean:
        SubElement(suite, "testcase", {"classname": _text(name), "name": "tunec lint"})
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(suite: Element, diagnostic: Diagnostic, *, is_failing: bool) -> None:
    span = diagnostic.span
    place = {"file": _text(span.file), "line": str(span.line)} if span else {}
    names = {"classname": _text(diagnostic.file or _NOWHERE), "name": _name(diagnostic)}
    case = SubElement(suite, "testcase", {**names, **place})
    told = "\n".join(_lines(diagnostic))
    if is_failing:
        about = {"type": diagnostic.severity, "message": _text(diagnostic.message)}
        SubElement(case, "failure", about).text = _text(told)
    else:
        SubElement(case, "system-out").text = _text(f"{diagnostic.severity}: {told}")


def _name(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    return _text(f"{diagnostic.id} at line {span.line}" if span else diagnostic.id)


def _lines(diagnostic: Diagnostic) -> Iterator[str]:
    span = diagnostic.span
    yield f"{span.file}:{span.line}: {diagnostic.message}" if span else diagnostic.message
    yield from (f"note: {note}" for note in diagnostic.notes)
    if diagnostic.help:
        yield f"help: {diagnostic.help}"


def _text(text: str) -> str:
    """Text that XML 1.0 can hold: without control characters except line breaks and tabs."""
    return "".join(each if each in "\t\n" or _is_of_xml(each) else "\ufffd" for each in text)


def _is_of_xml(character: str) -> bool:
    code = ord(character)
    return 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
