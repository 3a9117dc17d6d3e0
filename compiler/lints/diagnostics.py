"""A rule's findings as diagnostics: how severe each is, and what it leads to."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.releases import split_requirement
from tunec.compiler.lints.rule import CONSEQUENCES, Finding, Rule


def check_rule(rule: Rule, run: LintContext) -> Iterator[Diagnostic]:
    """What one rule finds in a run; nothing where it speaks of other versions."""
    if not is_elsewhere(rule, run):
        yield from findings_of(rule, run)


def findings_of(rule: Rule, run: LintContext) -> Iterator[Diagnostic]:
    """What one rule finds in a run of the versions that it speaks of."""
    return (to_diagnostic(rule, finding, run) for finding in rule.check(run))


def is_elsewhere(rule: Rule, run: LintContext) -> bool:
    """Whether all versions that the rule speaks of are known not to run."""
    return bool(rule.consumers) and all(run.runs(each) is False for each in rule.consumers)


def to_diagnostic(rule: Rule, finding: Finding, run: LintContext) -> Diagnostic:
    """A finding as a diagnostic: its severity by how sure it is, and what it leads to."""
    severity = finding.severity or rule.severity
    message, notes = finding.message, list(finding.notes)
    consequence = finding.consequence or rule.consequence
    assumed = _assumed(rule, run)
    if not finding.certain:
        severity, message = "note", f"cannot tell: {message}"
    elif severity == "error" and assumed:
        severity = "warning"
    if assumed:
        notes.append(f"the version is not given; this holds for {assumed}")
    return Diagnostic(
        rule.name,
        severity,
        message,
        finding.labels,
        (f"what happens: {CONSEQUENCES[consequence]}", *notes),
        finding.help,
        finding.fix if finding.fix is None or _can_be_edited(finding, run) else None,
        finding.sum,
        consequence,
    )


def _can_be_edited(finding: Finding, run: LintContext) -> bool:
    """Whether what it speaks of stands in the file by itself, and not within a text."""
    return run.inline_json.isdisjoint(label.span for label in finding.labels)


def _assumed(rule: Rule, run: LintContext) -> str | None:
    """The version range on which a rule rests, where nobody named the version."""
    ranged = [each for each in rule.consumers if each != split_requirement(each)[0]]
    if not ranged or any(run.runs(each) for each in ranged):
        return None
    return " and ".join(ranged)
