"""Suppression: what is allowed is hidden where it is allowed, and hard errors never are."""

from tunec.compiler.diagnostics.allow import Allowance, suppress
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.frontend.load import load_text
from tunec.schemas.source import Span


def lint(name="some-lint", severity="warning", file="f.yaml", line=3, end_line=3):
    label = Label("", Span(file, line, 1, end_line, 5))
    return Diagnostic(name, severity, "a thing", (label,))


def comment(line, name="some-lint", file="f.yaml"):
    return Allowance(name, "why", Span(file, line, 9, line, 20), line)


def test_everywhere():
    found = suppress([lint(), lint("other")], [Allowance("some-lint", "why")])
    assert [each.id for each in found.kept] == ["other"]
    assert not found.unused


def test_on_the_line():
    here, there = lint(line=3), lint(line=4)
    assert suppress([here, there], [comment(3)]).kept == (there,)
    assert suppress([here], [comment(3, file="g.yaml")]).kept == (here,)
    assert suppress([here], [comment(3, name="other")]).kept == (here,)
    assert suppress([lint(line=2, end_line=5)], [comment(4)]).kept == ()


def test_a_second_place_does_not_count():
    label = Label("", Span("f.yaml", 3, 1, 3, 5), primary=False)
    found = Diagnostic("some-lint", "note", "a thing", (label,))
    assert suppress([found], [comment(3)]).kept == (found,)


def test_hard_errors_remain():
    hard = lint("E0301", "error")
    found = suppress([hard], [Allowance("E0301", "why"), comment(3, "E0301")])
    assert found.kept == (hard,)
    assert len(found.unused) == 2


def test_lints_of_any_severity_can_be_allowed():
    assert suppress([lint(severity="error")], [Allowance("some-lint", "why")]).kept == ()


def test_what_hides_nothing_is_told():
    idle = comment(9)
    assert suppress([lint()], [Allowance("some-lint", "why"), idle]).unused == (idle,)


def test_comments_of_a_spec():
    text = "tunec: 1\ntrain:\n  epochs: 3 # tunec: allow(some-lint) it is meant so\n"
    loaded = load_text(text, "f.yaml")
    assert suppress([lint(line=3)], loaded.allowances).kept == ()
    assert suppress([lint(line=2, end_line=2)], loaded.allowances).kept
