"""lint: files, as runs, to everything that is wrong with them, in a stable order.

Two files of one kind are never of one run: two files for DeepSpeed are two choices. Where that
happens, files are taken apart by directory. Where it happens within a directory, each of them is
read by itself, with what it refers to and with those of the directory that stand in nobody's way.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.allow import Allowance, suppress
from tunec.compiler.diagnostics.diagnostic import Diagnostic, has_errors
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRAINERS, Document
from tunec.compiler.lints.documents import Reading, read_files, read_texts
from tunec.compiler.lints.edits import apply
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.index import rule_names, rules_for
from tunec.compiler.lints.leniency import is_of_nobody, is_of_nothing
from tunec.compiler.lints.neighbours import UNKNOWN, catalogue_model, files_of, model_at_hand
from tunec.compiler.lints.pins import Repository
from tunec.compiler.lints.reach import Reach, reach_of
from tunec.compiler.lints.rule import check_rule, to_diagnostic
from tunec.compiler.target import Artifact, Target
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tunec.compiler.facts import ResolvedModel

_BY_FLAGS: Final = ("shell", "env")
_MANY: Final = frozenset({"checkpoint", "hostfile"})
"""Kinds of which a run may have several."""
_OBJECTIVES: Final = {*TRAINERS, "axolotl", "simpletuner"} - {"hf"}
"""Kinds that say what is trained: a run has one. TrainingArguments may stand beside them."""

_ARGUMENTS: Final = frozenset({"hf", "objective"})
Kind = tuple[str, bool]
"""Whose keys a file holds, and whether it gives them as flags: flags beside a file are usual."""


class _Part(Struct, frozen=True, eq=False, dict=True):
    """A file that was named, with what it refers to."""

    path: Path
    own: frozenset[Kind]
    every: frozenset[Kind]
    """With the kinds of what it refers to."""
    files: frozenset[Path]
    """All that were read for it."""

    @cached_property
    def file(self) -> Path:
        """The file itself, however it was named."""
        return self.path.resolve()


def read_runs(
    paths: Sequence[Path], targets: Mapping[str, Target], readers: Sequence[str], reach: Reach
) -> Iterator[Reading]:
    """Read files, with those that they refer to, run by run; raises nothing for any content."""
    whole = read_files(paths, targets, readers, reach)
    if not _is_doubtful(whole.documents, frozenset(map(str, paths))):
        yield whole
        return
    parts = [
        _part(each, read_files([each], targets, readers, reach)) for each in dict.fromkeys(paths)
    ]
    for run in _apart(tuple(_heads(parts))):
        yield read_files([each.path for each in run], targets, readers, reach)


def _is_doubtful(documents: Sequence[Document], named: frozenset[str]) -> bool:
    """Whether two of the files that were named are of one kind."""
    own = {(each.name, _kind(each)) for each in _counted(documents) if each.name in named}
    return len(own) > len({kind for _, kind in own})


def _counted(documents: Sequence[Document]) -> Iterator[Document]:
    return (each for each in documents if not each.is_view and each.kind not in _MANY)


def _kind(document: Document) -> Kind:
    kind = "objective" if document.kind in _OBJECTIVES else document.kind
    return kind, document.format in _BY_FLAGS


def _part(path: Path, reading: Reading) -> _Part:
    documents = tuple(_counted(reading.documents))
    return _Part(
        path,
        frozenset(_kind(each) for each in documents if each.name == str(path)),
        frozenset(map(_kind, documents)),
        frozenset({path.resolve(), *(Path(each).resolve() for each in reading.sources)}),
    )


def _heads(parts: Sequence[_Part]) -> Iterator[_Part]:
    """Those to which no other one refers; of two that refer to each other, the first."""
    readers: dict[Path, list[_Part]] = {}
    for part in parts:
        for file in part.files:
            readers.setdefault(file, []).append(part)
    dropped: set[Path] = set()
    for part in parts:
        others = (each for each in readers[part.file] if each is not part)
        if any(each.file not in part.files or each.file in dropped for each in others):
            dropped.add(part.file)
    return (each for each in parts if each.file not in dropped)


def _apart(parts: Sequence[_Part]) -> Iterator[Sequence[_Part]]:
    """The parts of each run, in the order in which they were named."""
    if not _clashing(parts):
        yield parts
        return
    folders: dict[Path, list[_Part]] = {}
    for part in parts:
        folders.setdefault(part.path.parent, []).append(part)
    for here in folders.values():
        clashing = _clashing(here)
        free = [each for each in here if each not in clashing]
        yield from _with_free(clashing, free) if clashing else (free,)


def _with_free(clashing: Sequence[_Part], free: Sequence[_Part]) -> Iterator[Sequence[_Part]]:
    """Each that clashes with those that do not.

    Where each script has arguments of its own, and none names a file of arguments, nobody knows
    for which of them that is: it stands alone.
    """
    for one in clashing:
        yield [one, *(each for each in free if not _doubles(one, each))]
    yield from ([each] for each in free if all(_doubles(one, each) for one in clashing))


def _doubles(one: _Part, other: _Part) -> bool:
    """Whether one gives by flags what the other gives by a file, or the other way round."""
    mine, theirs = (dict.fromkeys(part.own) for part in (one, other))
    return any((name, not by_flags) in theirs for name, by_flags in mine if name in _ARGUMENTS)


def _clashing(parts: Sequence[_Part]) -> list[_Part]:
    """Those that are of a kind that another one has, or refers to, or the other way round."""
    own = Counter(kind for each in parts for kind in each.own)
    every = Counter(kind for each in parts for kind in each.every)

    def clashes(part: _Part) -> bool:
        is_taken = any(every[kind] > 1 for kind in part.own)
        return is_taken or any(own[kind] > (kind in part.own) for kind in part.every)

    return [each for each in parts if clashes(each)]


PAGES: Final = "docs/rules.md"


class Linted(Struct, frozen=True):
    """What was found, and what it was found in."""

    runs: tuple[LintContext, ...]
    """One, unless files that were named stand in each other's way."""
    diagnostics: tuple[Diagnostic, ...]
    """Sorted by file, line, column and name; what is allowed is left out."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Text of each file by the name that spans use."""
    passed_over: tuple[str, ...] = ()
    """Files below a folder that was named which are none of a known kind."""
    cut_short: tuple[str, ...] = ()
    """Folders that were named and hold more than was read."""

    @property
    def run(self) -> LintContext:
        """The run, or the first of several."""
        return self.runs[0]

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings and notes are none."""
        return not has_errors(self.diagnostics)

    def fixed(self) -> dict[str, str]:
        """The texts of the files that change when every safe fix is applied."""
        fixes = (each.fix for each in self.diagnostics if each.fix is not None)
        return apply(self.sources, [fix.edits for fix in fixes if fix.applicability == "safe"])


def lint_files(
    paths: Iterable[Path],
    targets: Mapping[str, Target],
    environment: Environment | None = None,
    allowances: Sequence[Allowance] = (),
) -> Linted:
    """Read files, with those that they refer to, and check them against every rule.

    They are one run, or several where two of them are of one kind (`read_runs`). A
    folder stands for the configs below it; its other files are counted in `passed_over`.
    """
    surroundings = environment or Environment()
    gathered = files_of(paths)
    found = frozenset(str(path) for path, is_found in gathered.files.items() if is_found)
    reach = reach_of(gathered.files, allow_outside=surroundings.allow_outside)
    readings = list(read_runs(tuple(gathered.files), targets, surroundings.readers, reach))
    strange = frozenset(name for each in readings for name in _strangers(each)) & found
    kept = [_without(each, strange) for each in readings]
    repository = Repository(reach)
    checked = (
        _checked(
            each,
            targets,
            _with_pins(surroundings, repository, each),
            allowances,
            model_at_hand(map(Path, each.sources), reach),
        )
        for each in kept
    )
    linted = _together(list(checked))
    cut = tuple(map(str, gathered.cut_short))
    return replace(linted, passed_over=tuple(sorted(strange)), cut_short=cut)


def _with_pins(environment: Environment, repository: Repository, of: Reading) -> Environment:
    """The surroundings, with what the repository requires where the command line says nothing."""
    pins = repository.pins(map(Path, of.sources))
    return replace(environment, pins={**pins, **environment.pins})


def lint_texts(
    texts: Mapping[str, str],
    targets: Mapping[str, Target],
    environment: Environment | None = None,
    allowances: Sequence[Allowance] = (),
) -> Linted:
    """Check texts, by file name, against every rule, as one run; nothing is read from disk."""
    surroundings = environment or Environment()
    reading = read_texts(texts, targets, surroundings.readers)
    return _together([_checked(reading, targets, surroundings, allowances)])


def check_artifacts(
    artifacts: Iterable[Artifact],
    targets: Mapping[str, Target],
    environment: Environment | None = None,
) -> tuple[Diagnostic, ...]:
    """The errors of files that tunec has written itself, as one run of one target.

    `environment` should hold the plan's cluster, model and versions, and the target's name as the
    one reader. A plan whose files break a rule must not be emitted.
    """
    texts = {each.name: each.text for each in artifacts}
    found = lint_texts(texts, targets, environment)
    return tuple(each for each in found.diagnostics if each.severity == "error")


def _strangers(reading: Reading) -> Iterator[str]:
    """The files that are of no known kind, also those of which nothing could be read."""
    yield from (each.name for each in reading.unread)
    yield from (each.file for each in reading.faults if is_of_nobody(each) or is_of_nothing(each))


def _without(reading: Reading, files: Set[str]) -> Reading:
    unread = tuple(each for each in reading.unread if each.name not in files)
    faults = tuple(each for each in reading.faults if each.file not in files)
    return replace(reading, unread=unread, faults=faults)


class _Checked(Struct, frozen=True):
    """What was found in one run."""

    run: LintContext
    sources: Mapping[str, str]
    found: tuple[Diagnostic, ...]
    allowed: tuple[Allowance, ...]
    unused: frozenset[Allowance]


def _checked(
    reading: Reading,
    targets: Mapping[str, Target],
    environment: Environment,
    allowed: Sequence[Allowance],
    resolve_model: "Callable[[str], ResolvedModel | None]" = catalogue_model,
) -> _Checked:
    run = LintContext(
        reading.documents,
        environment,
        targets,
        reading.missing,
        reading.unread,
        resolve_model,
    )
    every = (*allowed, *reading.allowances)
    rest = suppress(check(run), every)
    found = (*reading.faults, *rest.kept, *_unreasoned(every))
    return _Checked(run, reading.sources, found, every, frozenset(rest.unused))


def _together(runs: Sequence[_Checked]) -> Linted:
    """What was found in any run, once; an allowance is of use where it hides something in one."""
    used = {each for run in runs for each in run.allowed if each not in run.unused}
    found = [*_agreed(runs), *(each for run in runs for each in _unused(run, used))]
    sources = {name: text for each in runs for name, text in each.sources.items()}
    every = tuple(_once(sorted(dict.fromkeys(found), key=_order)))
    return Linted(tuple(each.run for each in runs), every, sources)


_UNKNOWN_MODEL: Final = f"cannot tell: {UNKNOWN}"
_MOST_NAMED: Final = 3


def _once(found: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """One note of all that say that a model is not known: it names the other files."""
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
    """What was found, without fixes on which the runs that share the mended file do not agree."""
    for run in runs:
        for each in run.found:
            edits = each.fix.edits if each.fix is not None and len(runs) > 1 else ()
            files = {edit.span.file for edit in edits}
            shared = [other for other in runs if not files.isdisjoint(other.sources)]
            is_agreed = all(each in other.found for other in shared)
            yield each if is_agreed else replace(each, fix=None)


def check(run: LintContext) -> Iterator[Diagnostic]:
    """What every rule finds in a run."""
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
