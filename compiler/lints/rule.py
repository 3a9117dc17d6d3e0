"""What a rule is, what a finding is, and how findings become diagnostics."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import PurePath
from typing import Final, Literal

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Fix, Label, Severity, Term
from tunec.compiler.frontend.notebook import is_notebook, place_in
from tunec.compiler.frontend.python_calls import is_python_text
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.edits import apply
from tunec.compiler.lints.environment import Release, split_requirement
from tunec.compiler.releases import Releases
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span

Consequence = Literal[
    "silent",
    "parse",
    "load",
    "init",
    "step",
    "out-of-memory",
    "hang",
    "save",
    "resume",
    "slow",
    "unclear",
]
"""What happens to a run with the fault, and when the user notices."""

CONSEQUENCES: Final[dict[Consequence, str]] = {
    "silent": "no error: the run continues, but not as intended",
    "parse": "rejected while the configuration is read",
    "load": "fails while the model is loaded",
    "init": "rejected when trainer and engine are set up, before the first step",
    "step": "fails, or goes wrong, in the first steps",
    "out-of-memory": "runs out of memory",
    "hang": "hangs without an error",
    "save": "fails, or loses something, when a checkpoint is written",
    "resume": "fails when training is resumed or the best model is loaded",
    "slow": "runs, but slower than the hardware allows",
    "unclear": "not known from what was read",
}
"""The text that describes each consequence."""

UNCERTAIN: Final = "cannot tell: "
"""The beginning of the message of a finding that rests on something unknown."""

Unless = Literal["", "declared", "quoted"]
"""What in the repository's own source cancels a finding. `declared`: a class has the key as a
field, a parser has the flag, or a script takes the key out of what it reads. `quoted`: the source
contains the word as a string."""

ALWAYS: Final = ("*",)
"""The `reads` of a rule that is checked in every run."""


def keys(kinds: str, *names: str) -> tuple[str, ...]:
    """The `reads` of a rule that reads keys of several kinds: `keys("dpo|kto", "beta")`."""
    return tuple(f"{kind}:{name}" for kind in kinds.split("|") for name in names)


class Finding(Struct, frozen=True):
    """One occurrence of a rule's fault; `LintContext` and `Place` help to build it."""

    message: str
    """The fault with its values, in a sentence that stands alone: lower case, no final period."""
    labels: tuple[Label, ...]
    """The places: users look at the first primary label first. If two files disagree, the place in
    the other file is a label too, with `primary=False`."""
    notes: tuple[str, ...] = ()
    """Facts about what actually happens in that version."""
    help: str | None = None
    """The smallest change that fixes the fault."""
    fix: Fix | None = None
    sum: tuple[Term, ...] = ()
    """The terms behind a number in the message."""
    certain: bool = True
    """False if the finding rests on something unknown, such as the reader of the file or the number
    of processes: it becomes a note that begins with `cannot tell`, and never fails a run."""
    consequence: Consequence | None = None
    """The consequence here, if it differs from the rule's, for example between versions."""
    severity: Severity | None = None
    """The severity here, if it is lower than the rule's."""


class Rule(Struct, frozen=True):
    """One rule: a function below `@rule(...)`, or `rows(...)`, in a module of its subject.

    A rule about several programs is in `compiler/lints/checks/<subject>`, a rule about a single
    target in `targets/<name>/rules`. `name` names the fault, so that `allow(name)` reads well. The
    rule's page is `<name>.md` in the folder of its module: what happens, examples, and the sources
    of every claim.
    """

    name: str
    severity: Severity
    """`error`: the run certainly stops, or trains, saves or starts differently from what is
    written. `warning`: it does what is written, but worse than necessary, or a setting has no
    effect."""
    consequence: Consequence
    consumers: tuple[str, ...]
    """The consumers with this behaviour, and the versions that have it: `("deepspeed>=0.19.6",)`.
    The rule is skipped if the version is known and outside the range. If a range is given and no
    version is, an error becomes a warning that names the range, since another release may behave
    differently. No range means that every release known to tunec behaves so."""
    reads: tuple[str, ...]
    """Keys of which at least one is written whenever the rule finds anything, each after its kind
    of document: `deepspeed:zero_optimization.stage`, `trainer:bf16`, or `peft:*` for any key;
    `slot:adapter.kind` for any key that carries a slot. Only then is the rule checked
    (`tunec.compiler.lints.index`)."""
    hardware: bool
    """Whether the rule reads the cluster, its devices or its hosts; the number of processes does
    not count. The findings of other rules hold for all hardware
    (`tunec.compiler.lints.emission`)."""
    check: "Callable[[LintContext], Iterable[Finding]]"
    """A pure function that raises nothing for any input, and yields findings in document order."""
    unless: Unless = ""


def rule(
    severity: Severity,
    consequence: Consequence,
    *,
    consumers: tuple[str, ...],
    reads: tuple[str, ...] = ALWAYS,
    hardware: bool = False,
    unless: Unless = "",
) -> "Callable[[Callable[[LintContext], Iterable[Finding]]], Rule]":
    """Make a rule of the decorated function: `def the_bad_thing` is the rule `the-bad-thing`.

    The arguments are the fields of `Rule`.
    """

    def made(check: "Callable[[LintContext], Iterable[Finding]]") -> Rule:
        name = check.__name__.replace("_", "-")
        return Rule(name, severity, consequence, consumers, reads, hardware, check, unless)

    return made


def check_rule(rule: Rule, run: LintContext) -> Iterator[Diagnostic]:
    """The findings of one rule in a run; none if the rule is about other versions."""
    if not is_elsewhere(rule, run):
        yield from findings_of(rule, run)


def findings_of(rule: Rule, run: LintContext) -> Iterator[Diagnostic]:
    """The findings of one rule in a run, whose versions are not checked.

    If a rule raises, its failure is reported as a finding, and the other rules still run.
    """
    try:
        for finding in rule.check(run):
            if not (rule.unless and _is_own(rule.unless, finding, run)):
                yield to_diagnostic(rule, finding, run)
    except Exception as fault:  # noqa: BLE001  whatever it is, it is ours
        yield failure(rule, fault, run)


def _is_own(unless: Unless, finding: Finding, run: LintContext) -> bool:
    """Whether the repository's own source declares the unknown key, or quotes the unknown word."""
    label = next((each for each in finding.labels if each.primary), None)
    place = None if label is None else _place_of(label, run)
    if place is None or place.document.format == "python":
        return False  # a call names its class, and quotes the word itself
    if unless == "quoted":
        return run.own.quotes(place.node.written or str(place.value))
    name = place.path.removeprefix("--").rpartition(".")[2]
    return run.own.declares(name, as_flag=place.document.format == "shell") or (
        place.document.format != "shell" and _is_taken(name, run)
    )


_LONG: Final = 12
"""The length from which a quoted name is assumed to be the key and nothing else."""


def _is_taken(name: str, run: LintContext) -> bool:
    return run.own.takes(name) or (len(name) >= _LONG and run.own.quotes(name))


def _place_of(label: Label, run: LintContext) -> Place | None:
    """The key at which, or at whose value, a label is placed."""
    path = label.path or ""
    by_name = (each.found[path] for each in run.documents if path in each.found)
    others = (at for each in run.documents for at in each.found.values() if at.path == path)
    every = chain(by_name, others)  # nearly all have their path as their name: no search for each
    return next((at for at in every if label.span in (at.span, at.key_span)), None)


def failure(rule: Rule, fault: Exception, run: LintContext) -> Diagnostic:
    """The diagnostic for a rule that raised an exception."""
    first = next((each.root.span for each in run.documents), None)
    return Diagnostic(
        rule.name,
        "warning",
        f"tunec failed to check this: {type(fault).__name__}: {fault}",
        (Label("in this run", first),),
        (f"raised in {_raised_in(fault)}", "the other rules were checked"),
        "please report it as a bug, with the command and the files",
        is_bug=True,
    )


def _raised_in(fault: Exception) -> str:
    """The function that raised the exception, and its line."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    code = trace.tb_frame.f_code
    return f"{code.co_name}, {PurePath(code.co_filename).name}:{trace.tb_lineno}"


_SEVERAL: Final = 3
"""Keys of one file that its reader lacks: so many are no slip, but of another release or a copy."""


def of_known_release(
    refused: Sequence[Finding], run: LintContext, requirement: str
) -> Iterator[Finding]:
    """What a file's reader refuses; one note for several keys if an older release may read them.

    `requirement`: the package with the first release whose keys are known, `verl>=0.8`.
    """
    if len({each.labels[0].path for each in refused}) < _SEVERAL or _is_no_older(run, requirement):
        yield from refused
        return
    first, others = refused[0], len(refused) - 1
    yield replace(
        first,
        message=f"{first.message}, nor {others} more of this file",
        notes=(
            f"no release of {split_requirement(requirement)[0]} is given, and older ones differ",
        ),
        help=f"name the release that reads it, as `--software {requirement.replace('>=', '==')}`",
        fix=None,
        severity="note",
    )


def _is_no_older(run: LintContext, requirement: str) -> bool:
    """Whether what is given of a package's release keeps older ones out."""
    package, least = split_requirement(requirement)
    release = run.releases.get(package)
    if release is None or release.pin is None:
        return release is not None and release.is_named
    return all(
        any(_is_least(sign, bound, least) for sign, bound in each.bounds)
        for each in release.pin.ranges
    )


def _is_least(sign: str, bound: str, least: Releases) -> bool:
    is_lower = sign in (">", ">=", "==", "===", "~=")
    return is_lower and least.contains(bound.removesuffix(".*"))


def is_elsewhere(rule: Rule, run: LintContext) -> bool:
    """Whether the run's versions are known, and the rule is about none of them."""
    return bool(rule.consumers) and all(run.runs(each) is False for each in rule.consumers)


def is_dated(rule: Rule, run: LintContext) -> bool:
    """Whether a release is given of a program that a rule is about."""
    known = (run.releases.get(split_requirement(each)[0]) for each in rule.consumers)
    return any(each is not None and each.is_known for each in known)


def to_diagnostic(rule: Rule, finding: Finding, run: LintContext) -> Diagnostic:
    """A finding as a diagnostic: its severity depends on its certainty and consequence."""
    severity = finding.severity or rule.severity
    message, notes = finding.message, list(finding.notes)
    consequence = finding.consequence or rule.consequence
    assumed = _assumed(rule, run)
    if not finding.certain:
        severity, message = "note", f"{UNCERTAIN}{message}"
    elif _is_otherwise(rule, run, is_by_version=consequence in BY_VERSION, assumed=assumed):
        severity = "note"
    elif severity == "error" and (assumed or consequence == "slow"):
        severity = "warning"
    if assumed:
        notes.append(f"the version is not given; this holds for {assumed}")
    notes += _in_cell(finding, run)
    notes += _known_from(rule, (finding.message, *finding.notes, assumed or ""), run)
    return Diagnostic(
        rule.name,
        severity,
        message,
        finding.labels,
        (*_what_happens(consequence, severity), *notes),
        finding.help,
        finding.fix if finding.fix is None or _can_be_edited(finding, run) else None,
        finding.sum,
        consequence,
    )


def _in_cell(finding: Finding, run: LintContext) -> Iterator[str]:
    """The cell and line of a finding in a notebook, counted as a reader counts them."""
    for span in islice(_in_notebooks(finding), 1):
        texts = (each.text for each in run.documents if each.name == span.file)
        at = place_in(next(texts, ""), span)
        yield from () if at is None else (f"cell {at[0]}, line {at[1]}",)


def _in_notebooks(finding: Finding) -> Iterator[Span]:
    spans = (each.span for each in finding.labels)
    return (each for each in spans if each is not None and is_notebook(each.file))


def _can_be_edited(finding: Finding, run: LintContext) -> bool:
    """Whether a finding's key is written in the file itself, not within a string or a notebook.

    After the edits, a Python file must still be valid Python.
    """
    if any(True for _ in _in_notebooks(finding)):
        return False
    if not run.inline_json.isdisjoint(label.span for label in finding.labels):
        return False
    texts = {each.name: each.text for each in run.documents if each.format == "python"}
    edits = finding.fix.edits if finding.fix is not None else ()
    if texts.keys().isdisjoint(edit.span.file for edit in edits):
        return True
    mine = tuple(edit for edit in edits if edit.span.file in texts)
    return all(is_python_text(text) for text in apply(texts, [mine]).values())


def _what_happens(consequence: Consequence, severity: Severity) -> Iterator[str]:
    """The note about the consequence; for a silent fault there is none, as the message says all.

    Unless the finding is an error, out of memory is described as a possibility.
    """
    if consequence == "out-of-memory" and severity != "error":
        yield "what happens: may run out of memory"
    elif consequence != "silent":
        yield f"what happens: {CONSEQUENCES[consequence]}"


def _known_from(rule: Rule, told: tuple[str, ...], run: LintContext) -> Iterator[str]:
    """Notes on the source of each release that the finding names or rests on."""
    ranged = {name for name, releases in map(split_requirement, rule.consumers) if releases.text}
    every = "\n".join(told)
    for release in run.releases.values():
        if release.pin is not None and (release.package in ranged or _is_named(release, every)):
            yield f"{release.in_words}: {release.pin.where}"


def _is_named(release: Release, text: str) -> bool:
    """Whether a text has a release, or its range; without the package's name, it has neither."""
    packages = {release.package, release.package if release.pin is None else release.pin.package}
    is_near = any(each in text for each in packages)
    return is_near and (str(release) in text or release.in_words in text)


def _is_otherwise(
    rule: Rule, run: LintContext, *, is_by_version: bool, assumed: str | None
) -> bool:
    """Whether what the repository installs may do otherwise: a commit, or somebody's version."""
    found = [run.releases.get(split_requirement(each)[0]) for each in rule.consumers]
    is_of_commit = any(each is not None and each.is_of_commit for each in found)
    is_own = any(each is not None and each.pin is not None and each.pin.is_own for each in found)
    return (is_of_commit and (is_by_version or assumed is not None)) or (is_own and is_by_version)


BY_VERSION: Final = ("parse", "load")
"""Consequences of unknown keys, words and modules, which a modified version may have."""


def _assumed(rule: Rule, run: LintContext) -> str | None:
    """The version range that a rule assumes because no version is given."""
    ranged = [each for each in rule.consumers if each != split_requirement(each)[0]]
    if not ranged or any(run.runs(each) for each in ranged):
        return None
    return " and ".join(ranged)
