"""lint: files that are there to everything that is wrong with them, in a stable order."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tunec.compiler.diagnostics.allow import Allowance, suppress
from tunec.compiler.diagnostics.diagnostic import Diagnostic, has_errors
from tunec.compiler.lints.documents import Reading, read_files, read_texts
from tunec.compiler.lints.edits import apply
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.index import rule, rule_names
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.silence import outspoken
from tunec.compiler.lints.telling import check_rule, told
from tunec.compiler.target import Artifact, Target
from tunec.schemas.frozen import dataclass

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel

PAGES: Final = "docs/rules.md"


@dataclass(frozen=True, slots=True)
class Linted:
    """What was found, and what it was found in."""

    run: Run
    diagnostics: tuple[Diagnostic, ...]
    """Sorted by file, line, column and name; what is allowed is left out."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Text of each file by the name that spans use."""

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
    """Read files, with those that they refer to, as one run, and check it against every rule."""
    surroundings = environment or Environment()
    reading = read_files(paths, targets, surroundings.readers)
    return _linted(reading, targets, surroundings, allowances)


def lint_texts(
    texts: Mapping[str, str],
    targets: Mapping[str, Target],
    environment: Environment | None = None,
    allowances: Sequence[Allowance] = (),
) -> Linted:
    """The same for texts by file name; nothing is read from disk."""
    surroundings = environment or Environment()
    reading = read_texts(texts, targets, surroundings.readers)
    return _linted(reading, targets, surroundings, allowances)


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


def _linted(
    reading: Reading,
    targets: Mapping[str, Target],
    environment: Environment,
    allowed: Sequence[Allowance],
) -> Linted:
    run = Run(
        reading.documents,
        environment,
        targets,
        reading.missing,
        reading.unread,
        catalogue_model,
    )
    every = (*allowed, *reading.allowances)
    rest = suppress(check(run), every)
    found = [*reading.faults, *rest.kept, *_unreasoned(every), *_unused(rest.unused, run)]
    return Linted(run, tuple(sorted(dict.fromkeys(found), key=_order)), reading.sources)


def check(run: Run) -> Iterator[Diagnostic]:
    """What every rule finds in a run; those that are known to find nothing are not imported."""
    for name in outspoken(run, rule_names()):
        yield from check_rule(rule(name), run)


_FIRST: Final = ("", 0, 0)


def _order(diagnostic: Diagnostic) -> tuple[str, int, int, str, str]:
    span = diagnostic.primary.span if diagnostic.primary else None
    place = (span.file, span.line, span.column) if span else _FIRST
    return (*place, diagnostic.id, diagnostic.message)


def _unreasoned(allowances: Iterable[Allowance]) -> Iterator[Diagnostic]:
    from tunec.compiler.frontend.checks import without_reason

    for each in allowances:
        if not each.reason.strip() and each.span is not None:
            form = f"# tunec: allow({each.name}): why it is right here"
            yield without_reason(each.name, each.span, (), form)


def _unused(allowances: Iterable[Allowance], run: Run) -> Iterator[Diagnostic]:
    from tunec.compiler.lints.files.unused_allowance import RULE, findings

    return (told(RULE, each, run) for each in findings(allowances, rule_names()))


def catalogue_model(name: str) -> "ResolvedModel | None":
    """The catalogue's model of a repository or catalogue name; None where it has none.

    A folder, or another's copy, is the model that is called as its last part is.
    """
    from tunec.compiler.gather import resolve_model
    from tunec.schemas.models.catalogue import card

    last = name.rstrip("/").rpartition("/")[2]
    for each in dict.fromkeys((name, last)):
        try:
            return resolve_model(card(each).name, Path())
        except (LookupError, ValueError, OSError):
            continue
    return None
