"""What a rule is, what it finds, and its findings as diagnostics."""

from collections.abc import Callable, Iterable, Iterator
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
from tunec.compiler.releases import ANY
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
"""What happens to a run that has the fault, and when its owner finds out."""

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
"""The words in which each is told."""

UNCERTAIN: Final = "cannot tell: "
"""How a finding begins that rests on something unknown."""

Unless = Literal["", "declared", "quoted"]
"""What the repository's own source may say otherwise: that a class has the key as a field (or, of
flags, a parser) or a script takes it out of what it reads, or that it has the word as a text. Then
nothing is found."""

ALWAYS: Final = ("*",)
"""What a rule reads that is asked of every run."""


def keys(kinds: str, *names: str) -> tuple[str, ...]:
    """What a rule reads that asks several kinds of document for keys: `keys("dpo|kto", "beta")`."""
    return tuple(f"{kind}:{name}" for kind in kinds.split("|") for name in names)


class Finding(Struct, frozen=True):
    """One occurrence of what a rule is about; `LintContext` and `Place` help to build it."""

    message: str
    """What is wrong here, with the values; stands alone; lower case, no final period."""
    labels: tuple[Label, ...]
    """Where: the first primary label is where people look first; the other file's place, where two
    disagree, is a label too, with `primary=False`."""
    notes: tuple[str, ...] = ()
    """Facts about what really happens in that version."""
    help: str | None = None
    """The smallest change that mends it."""
    fix: Fix | None = None
    sum: tuple[Term, ...] = ()
    """The terms behind a number in the message."""
    certain: bool = True
    """False where it rests on something unknown (who reads the file, how many processes): then it
    is told as a note that begins with `cannot tell`, and never fails a run."""
    consequence: Consequence | None = None
    """Where it differs from the rule's own, as between versions."""
    severity: Severity | None = None
    """Where this occurrence is less severe than the rule's own severity."""


class Rule(Struct, frozen=True):
    """One rule: a function below `@rule(...)`, or `rows(...)`, in a module of its subject.

    A rule that concerns several programs stands in `compiler/lints/checks/<subject>`, one of a
    single target in `targets/<name>/rules`. `name` names the bad thing, so that `allow(name)` reads
    well; its page is `<name>.md` in the folder of its module:
    what happens, examples, and the sources of all that is claimed.
    """

    name: str
    severity: Severity
    """`error`: the run certainly ends, or trains, saves or starts other than is written. `warning`:
    it does what is written, but is worse than it need be, or a setting does nothing."""
    consequence: Consequence
    consumers: tuple[str, ...]
    """Whose behaviour it is, with the versions that have it: `("deepspeed>=0.19.6",)`.

    The rule is left out where a version is known and outside. Where a range is given and nobody
    named the version, an error becomes a warning that says so, as another release behaves
    otherwise. Leave the range out where every release that tunec knows behaves so.
    """
    reads: tuple[str, ...]
    """Keys of which at least one is written wherever the rule finds anything, each after its kind
    of document: `deepspeed:zero_optimization.stage`, `trainer:bf16`, or `peft:*` for any key;
    `slot:adapter.kind` for any key that says a slot. The rule is asked only then
    (`tunec.compiler.lints.index`)."""
    hardware: bool
    """Whether it asks for the cluster, its devices or its hosts; the number of processes is none
    of these. What another rule finds holds for all hardware (`tunec.compiler.lints.emission`)."""
    check: "Callable[[LintContext], Iterable[Finding]]"
    """Pure; raises nothing for any input; yields findings in the order of the document."""
    unless: Unless = ""


def rule(
    name: str,
    severity: Severity,
    consequence: Consequence,
    *,
    consumers: tuple[str, ...],
    reads: tuple[str, ...] = ALWAYS,
    hardware: bool = False,
    unless: Unless = "",
) -> "Callable[[Callable[[LintContext], Iterable[Finding]]], Rule]":
    """Make a rule of the function below it; the arguments are the fields of `Rule`."""

    def made(check: "Callable[[LintContext], Iterable[Finding]]") -> Rule:
        return Rule(name, severity, consequence, consumers, reads, hardware, check, unless)

    return made


def check_rule(rule: Rule, run: LintContext) -> Iterator[Diagnostic]:
    """What one rule finds in a run; nothing where it is about other versions."""
    if not is_elsewhere(rule, run):
        yield from findings_of(rule, run)


def findings_of(rule: Rule, run: LintContext) -> Iterator[Diagnostic]:
    """What one rule finds in a run of the versions that it is about.

    A rule that raises ends neither the others nor the program: its failure is one of the findings.
    """
    try:
        for finding in rule.check(run):
            if not (rule.unless and _is_own(rule.unless, finding, run)):
                yield to_diagnostic(rule, finding, run)
    except Exception as fault:  # noqa: BLE001  whatever it is, it is ours
        yield failure(rule, fault, run)


def _is_own(unless: Unless, finding: Finding, run: LintContext) -> bool:
    """Whether the repository's own source has the key, or the word, that is not known."""
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
"""Letters of a name that no script quotes for something else."""


def _is_taken(name: str, run: LintContext) -> bool:
    return run.own.takes(name) or (len(name) >= _LONG and run.own.quotes(name))


def _place_of(label: Label, run: LintContext) -> Place | None:
    """The key that a label stands at, or at the value of which."""
    path = label.path or ""
    by_name = (each.found[path] for each in run.documents if path in each.found)
    others = (at for each in run.documents for at in each.found.values() if at.path == path)
    every = chain(by_name, others)  # nearly all have their path as their name: no search for each
    return next((at for at in every if label.span in (at.span, at.key_span)), None)


def failure(rule: Rule, fault: Exception, run: LintContext) -> Diagnostic:
    """What is reported where a rule raises."""
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
    """The function that raised, and its line."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    code = trace.tb_frame.f_code
    return f"{code.co_name}, {PurePath(code.co_filename).name}:{trace.tb_lineno}"


def is_elsewhere(rule: Rule, run: LintContext) -> bool:
    """Whether all versions that the rule is about are known not to run."""
    return bool(rule.consumers) and all(run.runs(each) is False for each in rule.consumers)


def to_diagnostic(rule: Rule, finding: Finding, run: LintContext) -> Diagnostic:
    """A finding as a diagnostic: its severity by how sure it is, and what it leads to."""
    severity = finding.severity or rule.severity
    message, notes = finding.message, list(finding.notes)
    consequence = finding.consequence or rule.consequence
    assumed = _assumed(rule, run)
    if not finding.certain:
        severity, message = "note", f"{UNCERTAIN}{message}"
    elif (assumed and _is_of_commit(rule, run)) or (
        consequence in _BY_VERSION and _is_of_own_version(rule, run)
    ):
        severity = "note"
    elif severity == "error" and assumed:
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
    """Where in a notebook a finding stands, as its readers count."""
    for span in islice(_in_notebooks(finding), 1):
        texts = (each.text for each in run.documents if each.name == span.file)
        at = place_in(next(texts, ""), span)
        yield from () if at is None else (f"cell {at[0]}, line {at[1]}",)


def _in_notebooks(finding: Finding) -> Iterator[Span]:
    spans = (each.span for each in finding.labels)
    return (each for each in spans if each is not None and is_notebook(each.file))


def _can_be_edited(finding: Finding, run: LintContext) -> bool:
    """Whether what it is about stands in the file by itself, and not within a text.

    A Python file has to be one afterwards.
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
    """When its owner finds out; of what nothing reports, the message says all.

    That memory runs out is a possibility, but for errors.
    """
    if consequence == "out-of-memory" and severity != "error":
        yield "what happens: may run out of memory"
    elif consequence != "silent":
        yield f"what happens: {CONSEQUENCES[consequence]}"


def _known_from(rule: Rule, told: tuple[str, ...], run: LintContext) -> Iterator[str]:
    """Where the releases are known from that the finding names, or rests on."""
    ranged = {name for name, releases in map(split_requirement, rule.consumers) if releases.text}
    for release in run.releases.values():
        names = {str(release), release.in_words}
        is_meant = release.package in ranged or any(each in text for each in names for text in told)
        if release.pin is not None and is_meant:
            yield f"{release.in_words}: {release.pin.where}"


def _is_of_commit(rule: Rule, run: LintContext) -> bool:
    """Whether the repository fixes a commit of what the rule is about, and no release is known."""
    return any(is_commit(run.release(split_requirement(each)[0])) for each in rule.consumers)


_BY_VERSION: Final = ("parse", "load")
"""Where keys, words and modules are asked for, of which somebody's own version may have others."""


def _is_of_own_version(rule: Rule, run: LintContext) -> bool:
    """Whether the repository installs its own version of what the rule speaks of."""
    found = (run.releases.get(split_requirement(each)[0]) for each in rule.consumers)
    return any(each is not None and each.pin is not None and each.pin.is_own for each in found)


def is_commit(release: Release) -> bool:
    """Whether a commit is required, of an unknown release."""
    return release.pin is not None and ANY in release.pin.ranges


def _assumed(rule: Rule, run: LintContext) -> str | None:
    """The version range on which a rule rests, where no version is given."""
    ranged = [each for each in rule.consumers if each != split_requirement(each)[0]]
    if not ranged or any(run.runs(each) for each in ranged):
        return None
    return " and ".join(ranged)
