"""Lint: read files as runs, and report every fault in them in a stable order."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.allow import Allowance, suppress
from tunec.compiler.diagnostics.diagnostic import Applicability, Diagnostic, Fix, has_errors
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.documents import Reading, read_texts
from tunec.compiler.lints.edits import apply
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.evidence import as_known, unless_parsed, unless_settled
from tunec.compiler.lints.facts.model import as_loaded
from tunec.compiler.lints.grouping import Agreement, Group
from tunec.compiler.lints.index import rule_names, rules_for
from tunec.compiler.lints.installing import Installed
from tunec.compiler.lints.kinds import is_a_config_by_name
from tunec.compiler.lints.mentions import Mentions
from tunec.compiler.lints.neighbours import UNKNOWN, catalogue_model, is_python, model_at_hand
from tunec.compiler.lints.own_source import OwnSource, own_source
from tunec.compiler.lints.parses import is_of_nobody, is_of_nothing
from tunec.compiler.lints.repository import Repository, reach_of
from tunec.compiler.lints.rule import UNCERTAIN, check_rule, to_diagnostic
from tunec.compiler.lints.run_files import Run, Watch, apart, files_of, read_runs, unwatched
from tunec.compiler.lints.suppression import (
    OF_ANOTHER,
    lowered,
    unless_guessed,
    unless_own,
)
from tunec.compiler.lints.witness import Witness, as_witnessed
from tunec.compiler.target import Target
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel
    from tunec.compiler.lints.settings import Settings


PAGES: Final = "docs/rules.md"


class Linted(Struct, frozen=True):
    """The findings, and the runs in which they were found."""

    runs: tuple[LintContext, ...]
    """One run, or several if the named files conflict with each other."""
    diagnostics: tuple[Diagnostic, ...]
    """Sorted by file, line, column and name; allowed findings are left out."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The text of each file, by the name that spans use."""
    passed_over: tuple[str, ...] = ()
    """Files of no known kind, except Python files, below the named folders."""
    cut_short: tuple[str, ...] = ()
    """Named folders that hold more files than were read."""
    crowded: tuple[str, ...] = ()
    """Folders in which too many files can be combined with too many others."""

    @property
    def run(self) -> LintContext:
        """The only run, or the first of several."""
        return self.runs[0]

    @property
    def ok(self) -> bool:
        """Whether there are no errors; warnings and notes do not count."""
        return not has_errors(self.diagnostics)

    def fixes(self, applicability: Applicability) -> tuple[Fix, ...]:
        """The fixes of one applicability: safe or unsafe."""
        every = (each.fix for each in self.diagnostics if each.fix is not None)
        return tuple(fix for fix in every if fix.applicability == applicability)

    def fixed(self, *, unsafe: bool = False) -> dict[str, str]:
        """The texts of changed files after every safe fix, and with `unsafe` the unsafe ones."""
        every = (*self.fixes("safe"), *(self.fixes("unsafe") if unsafe else ()))
        return apply(self.sources, [fix.edits for fix in every])


def lint_files(
    paths: Iterable[Path],
    targets: Mapping[str, Target],
    environment: Environment | None = None,
    allowances: Sequence[Allowance] = (),
    settings: "Settings | None" = None,
    watch: Watch = unwatched,
    own: OwnSource | None = None,
) -> Linted:
    """Read files and the files that they refer to, and check them against every rule.

    The files form one run or several (`tunec.compiler.lints.grouping`). A folder stands for the
    configs below it; its files of no known kind are listed in `passed_over`. `settings` exclude
    files from folders, and set the severity of findings; `watch` receives the progress. `own` is
    the source of the projects around the files, if it was read before.
    """
    surroundings = environment or Environment()
    gathered = files_of(paths) if settings is None else files_of(paths, settings.excludes)
    found = frozenset(path for path, is_found in gathered.files.items() if is_found)
    reach = reach_of(gathered.files, allow_outside=surroundings.allow_outside)
    read = read_runs(tuple(gathered.files), targets, surroundings.readers, reach, found, watch)
    every = {name for each in read.runs for name in _strangers(each.reading)}
    strange = {
        each
        for each in every.intersection(map(str, found))
        if is_python(each) or not is_a_config_by_name(each)
    }
    repository, own = Repository(reach), own or own_source(gathered.files, reach)
    mentions = Mentions(own.roots)
    installed = Installed(lambda: mentions.whole)
    checked: list[_Checked] = []
    runs, lone = _kept(read.runs, strange), _Lone()
    for each in runs:
        watch("runs", len(runs))
        pins = installed.narrowed(repository.pins(map(Path, each.reading.sources)))
        pins = {**installed.of_images, **pins} if found else pins
        pinned = replace(surroundings, pins={**pins, **surroundings.pins})
        model = model_at_hand(map(Path, each.reading.sources), reach)
        checked.append(_checked(each, targets, pinned, allowances, model, own, lone))
    linted = _together(checked)
    names = frozenset(map(str, found))
    is_described = surroundings.cluster is not None or bool(surroundings.software)
    is_described = is_described or bool(surroundings.pins or surroundings.readers)
    witness = Witness(linted.runs, names, mentions, is_described)
    told = tuple(as_witnessed(_unless_of_another(linted.diagnostics, witness), witness))
    told = told if settings is None else settings.levelled(told)
    return replace(
        linted,
        diagnostics=told,
        passed_over=tuple(sorted(each for each in strange if not is_python(each))),
        cut_short=tuple(map(str, gathered.cut_short)),
        crowded=tuple(map(str, read.crowded)),
    )


_OF_KEYS: Final = frozenset(
    {
        *("adapter-key-unread", "flag-of-no-release", "glm-4-file-refused", "key-of-no-release"),
        *("key-outside-its-section", "key-unread-by-musubi-tuner", "key-unread-by-sd-scripts"),
    }
)
"""Rules about keys that a trainer's program does not know."""
_SEVERAL: Final = 3
"""Unknown keys of one file: of 13 such files of trainers in public repositories 12 were another
program's (docs/false-alarms.md), and a command gave the last one to its own."""


def _unless_of_another(found: Sequence[Diagnostic], witness: Witness) -> Iterator[Diagnostic]:
    """The findings; a file with several keys that its program does not know gets one note.

    It is another program's, unless commands name it and the program that it is taken for.
    """
    unknown = [each for each in found if each.id in _OF_KEYS and witness.is_asked(each)]
    counted = Counter((each.file, each.id) for each in unknown)
    told = set[tuple[str, str]]()
    for each in found:
        number = counted[each.file, each.id]
        if number < _SEVERAL or not witness.is_asked(each) or witness.shows_reader(each.file):
            yield each
        elif (each.file, each.id) not in told:
            told.add((each.file, each.id))
            more = f"so it is with {number - 1} more of its keys"
            yield lowered(replace(each, notes=(*each.notes, more)), OF_ANOTHER)


def _kept(runs: Sequence[Run], strange: Set[str]) -> list[Run]:
    """The runs without files of no known kind, and without the runs that this leaves empty."""
    rest = [replace(each, reading=_without(each.reading, strange)) for each in runs]
    return [each for each in rest if not _is_empty(each.reading)] or rest[:1]


def _is_empty(reading: Reading) -> bool:
    return not (reading.documents or reading.unread or reading.faults)


def lint_texts(
    texts: Mapping[str, str],
    targets: Mapping[str, Target],
    environment: Environment | None = None,
) -> Linted:
    """Check texts, by file name, as one run or one per alternative; nothing is read from disk."""
    surroundings = environment or Environment()
    runs = apart(Run(read_texts(texts, targets, surroundings.readers)))
    return _together([_checked(each, targets, surroundings, ()) for each in runs])


def _strangers(reading: Reading) -> Iterator[str]:
    """The files of no known kind, including those of which nothing could be read."""
    yield from (each.name for each in reading.unread)
    yield from (each.file for each in reading.faults if is_of_nobody(each) or is_of_nothing(each))


def _without(reading: Reading, files: Set[str]) -> Reading:
    unread = tuple(each for each in reading.unread if each.name not in files)
    faults = tuple(each for each in reading.faults if each.file not in files)
    return replace(reading, unread=unread, faults=faults)


class _Checked(Struct, frozen=True):
    """The findings of one run."""

    run: LintContext
    sources: Mapping[str, str]
    found: tuple[Diagnostic, ...]
    allowed: tuple[Allowance, ...]
    unused: frozenset[Allowance]
    group: Group = ()


def _checked(
    one: Run,
    targets: Mapping[str, Target],
    environment: Environment,
    allowed: Sequence[Allowance],
    resolve_model: "Callable[[str], ResolvedModel | None]" = catalogue_model,
    own: OwnSource | None = None,
    lone: "_Lone | None" = None,
) -> _Checked:
    reading = one.reading
    run = LintContext(
        reading.documents,
        environment,
        targets,
        reading.missing,
        reading.unread,
        as_loaded(reading.documents, resolve_model),
        own or OwnSource(),
        reading.beside,
    )
    run = unless_parsed(run)
    every = (*allowed, *reading.allowances)
    told = tuple(as_known(unless_own(unless_settled(check(run), run), run), run))
    if one.alone:
        lone = lone or _Lone()
        told = unless_guessed(told, [lone.found(run, each) for each in one.alone])
    rest = suppress(told, every)
    found = (*reading.faults, *rest.kept, *_unreasoned(every))
    return _Checked(run, reading.sources, found, every, frozenset(rest.unused), one.group)


class _Lone:
    """Caches the findings in files checked alone, which the runs of one script share."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._found: dict[int, list[tuple[LintContext, tuple[Diagnostic, ...]]]] = {}

    def found(self, run: LintContext, reading: Reading) -> tuple[Diagnostic, ...]:
        """The findings in a reading, in the surroundings of a run that contains the reading."""
        known = self._found.setdefault(id(reading), [])
        for other, found in known:
            if other.environment == run.environment and other.releases == run.releases:
                return found
        read = replace(
            run,
            documents=reading.documents,
            missing=reading.missing,
            unread=reading.unread,
            beside=reading.beside,
        )
        known.append((run, tuple(check(read))))
        return known[-1][1]


def _together(runs: Sequence[_Checked]) -> Linted:
    """The findings of all runs, each once; an allowance counts as used if it is used in any run."""
    used = {each for run in runs for each in run.allowed if each not in run.unused}
    found = [*_agreed(runs), *(each for run in runs for each in _unused(run, used))]
    sources = {name: text for each in runs for name, text in each.sources.items()}
    every = tuple(_once(_at_one_place(sorted(dict.fromkeys(found), key=_order))))
    return Linted(tuple(each.run for each in runs), every, sources)


_UNKNOWN_MODEL: Final = f"{UNCERTAIN}{UNKNOWN}"
_MOST_NAMED: Final = 3


def _at_one_place(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Merge equal findings of several runs at one place into one that names the other files."""
    first: dict[tuple[object, ...], list[Diagnostic]] = {}
    for each in found:
        first.setdefault((each.id, each.severity, each.message, each.primary), []).append(each)
    return [_with_others(one, rest) for one, *rest in first.values()]


def _with_others(one: Diagnostic, rest: Sequence[Diagnostic]) -> Diagnostic:
    spans = [label.span for each in (one, *rest) for label in each.labels]
    names = list(dict.fromkeys(span.file for span in spans if span is not None))
    others = [name for name in names if name not in {each.file for each in _spans(one)}]
    if not others:
        return one
    more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
    told = f"so it is with {', '.join(others[:_MOST_NAMED])}{more}"
    return replace(one, notes=(*one.notes, told))


def _spans(one: Diagnostic) -> list[Span]:
    return [label.span for label in one.labels if label.span is not None]


def _once(found: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """Merge all notes about an unknown model into the first, which names the other files."""
    unknown = [each for each in found if each.message == _UNKNOWN_MODEL]
    files = list(dict.fromkeys(each.file for each in unknown))[1:]
    named = ", ".join(files[:_MOST_NAMED])
    more = f"{named} and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else named
    for each in found:
        if files and each is unknown[0]:
            yield replace(each, notes=(*each.notes, f"nor are those of {more}"))
        elif each not in unknown[1:]:
            yield each


def _agreed(runs: Sequence[_Checked]) -> Iterator[Diagnostic]:
    """The findings that hold; a fix in an embedded file or with disagreement is dropped."""
    groups: dict[Group, list[Diagnostic]] = {}
    for run in runs:
        groups.setdefault(run.group, []).extend(run.found)
    agreement = Agreement([*groups.items()])
    for run in runs:
        for each in run.found:
            if not agreement.holds(each, run.group):
                continue
            shared = [other for other in runs if _shares(other, run, each)]
            is_agreed = all(each in other.found for other in shared)
            is_whole = not _is_within(each, run.sources)
            yield each if is_agreed and is_whole else replace(each, fix=None)


def _is_within(found: Diagnostic, sources: Mapping[str, str]) -> bool:
    """Whether a fix changes the text of a file that is embedded in another file."""
    edits = () if found.fix is None else found.fix.edits
    return any(str(PurePath(each.span.file).parent) in sources for each in edits)


def _shares(other: _Checked, run: _Checked, found: Diagnostic) -> bool:
    """Whether another run reads the file that a finding's fix changes, and the same lines of it."""
    edits = () if found.fix is None else found.fix.edits
    files = {edit.span.file for edit in edits}
    if files.isdisjoint(other.sources):
        return False
    if other.group != run.group:
        return True
    lines = {(edit.span.file, edit.span.line) for edit in edits}
    held = (at for each in other.run.documents for at in each.found.values())
    return any({(at.span.file, at.span.line), _key_line(at)} & lines for at in held)


def _key_line(place: Place) -> tuple[str, int]:
    return place.key_span.file, place.key_span.line


def check(run: LintContext) -> Iterator[Diagnostic]:
    """The findings of every rule in a run."""
    for each in rules_for(run.kinds, run.keys):
        yield from check_rule(each, run)


_FIRST: Final = ("", 0, 0)


def _order(diagnostic: Diagnostic) -> tuple[str, int, int, str, str]:
    span = diagnostic.span
    place = (span.file, span.line, span.column) if span else _FIRST
    return (*place, diagnostic.id, diagnostic.message)


def _unreasoned(allowances: Iterable[Allowance]) -> Iterator[Diagnostic]:
    from tunec.compiler.frontend.checks import without_reason

    for each in allowances:
        if not each.reason.strip() and each.span is not None:
            form = f"# tunec: allow({each.name}): why it is right here"
            yield without_reason(each.name, each.span, (), form)


def _unused(run: _Checked, used: Set[Allowance]) -> Iterator[Diagnostic]:
    from tunec.compiler.lints.checks.keys.files import findings, unused_allowance

    rest = [each for each in run.allowed if each not in used]
    return (to_diagnostic(unused_allowance, each, run.run) for each in findings(rest, rule_names()))
