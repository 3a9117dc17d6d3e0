"""What rules find in the files of a fleet, asked again only where what it rests on differs.

Clusters differ in much that no file says, and their files in little. What a rule found is kept with
what it asked of the surroundings and what it read of the files (`tunec.compiler.lints.surrounded`):
it holds for the same files wherever surroundings answer the same, and there for the next files too,
where these differ in nothing of it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.facts import Facts
from tunec.compiler.ir.ledger import Definition
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.recollection import Recollection
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.emitted import EXEMPT, documents_of, environment_of, told_of
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.index import rule_of
from tunec.compiler.lints.noted import EVERY_KEY, EVERYTHING, SLOT, Cell, Noted, Notes
from tunec.compiler.lints.questions import Question, answer
from tunec.compiler.lints.rule import Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.silence import known_rules, proof
from tunec.compiler.lints.surrounded import Surrounded
from tunec.compiler.lints.telling import check_rule
from tunec.compiler.lints.views import views
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact, Target

Verdict = Rule | tuple[Diagnostic, ...]
"""What a rule finds; or the rule itself, where it has to be asked each time."""

_KEPT: Final = ("releases", "deepspeed_reader", "written", "_of", "_places", "_faults")
"""What a run works out from its files and versions alone."""
_MOST: Final = 16
"""Surroundings that are kept for a rule and some files: a rule that looks at a number of each
cluster is sooner asked than remembered."""
_SHARED: Final = ("_said", "_faults")
"""What it works out from each file, and from versions."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What a rule finds in some surroundings, and what of the files that rests on."""

    verdict: Verdict
    asked: dict[Question, str]
    read: frozenset[Cell]


@dataclass(slots=True)
class _Files:
    """Files that were judged before."""

    run: Run
    quiet: dict[str, frozenset[Cell]] = field(default_factory=dict)
    """The rules that find nothing and ask nothing of the surroundings, with what they read."""
    others: dict[str, Recollection[Question, _Found]] = field(default_factory=dict)
    """The other rules, by what each asked of the surroundings."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was found of one spec's files so far."""

    _known: dict[tuple[Any, ...], _Files] = field(default_factory=dict)
    _latest: dict[tuple[Any, ...], _Files] = field(default_factory=dict)
    """Of each kind of files those that were judged last."""
    _documents: dict[Any, tuple[Artifact, tuple[Document, ...]]] = field(default_factory=dict)
    """By the identity of a file's values, which are kept with them."""
    _notes: Notes = field(default_factory=Notes)

    def forget(self) -> None:
        """Begin with another spec."""
        for each in (self._known, self._latest, self._documents):
            each.clear()

    def objections(
        self, asked: Asked, artifacts: Sequence[Artifact], facts: Facts, plan: Plan
    ) -> tuple[Diagnostic, ...]:
        """As `tunec.compiler.lints.emitted.objections`."""
        target, version = asked
        environment = environment_of(target, version, facts, plan)
        by = (target.name, version, facts.model.path, *facts.versions.items())
        key = (by, *(id(each.values) for each in artifacts))
        if key in self._known:
            run = _moved(self._known[key].run, environment)
            found = self._again(self._known[key], run)
        else:
            run = self._run(target, artifacts, environment)
            found = self._first(key, run)
        return told_of(_spoken(found, run), target, plan)

    def _run(self, target: Target, artifacts: Sequence[Artifact], around: Environment) -> Run:
        """Files as one run, of which those that stood in other runs are not read again."""
        every: list[Document] = []
        for each in artifacts:
            key = target.name, id(each.values), len(every)
            if key not in self._documents:
                noted = _noted(target, each, self._notes, len(every))
                self._documents[key] = each, tuple(noted)
            every += self._documents[key][1]
        return Run(tuple(every), around, {target.name: target})

    def _first(self, key: tuple[Any, ...], run: Run) -> Iterator[Verdict]:
        """What each rule finds in files that are seen for the first time."""
        kinds = (key[0], tuple(e.kind for e in run.documents), tuple(run.releases.values()))
        before = self._latest.get(kinds)
        if before is not None:
            run.__dict__.update({name: getattr(before.run, name) for name in _SHARED})
        files = self._known[key] = self._latest[kinds] = _Files(run)
        changed = None if before is None else _changed(before.run, run)
        surrounded = Surrounded(run, self._notes)
        for name, subject in known_rules().items():
            if name in EXEMPT:
                continue
            found = None
            if before is not None and changed is not None:
                found = _as_before(before, name, changed, surrounded)
            found = found or _judged(subject, name, surrounded)
            if found.verdict == () and not found.asked:
                files.quiet[name] = found.read
                continue
            kept = files.others[name] = Recollection()
            kept.keep(found.asked, found)
            yield found.verdict

    def _again(self, files: _Files, run: Run) -> Iterator[Verdict]:
        """The same where they come again, with other surroundings."""
        ask, surrounded, subjects = cache(partial(answer, run)), None, known_rules()
        for name, known in files.others.items():
            found = known.recall(ask)
            if found is None and known.size == _MOST:
                yield rule_of(subjects[name], name)
                continue
            if found is None:
                surrounded = surrounded or Surrounded(run, self._notes)
                found = _judged(subjects[name], name, surrounded)
                known.keep(found.asked, found)
            yield found.verdict


def _spoken(verdicts: Iterable[Verdict], run: Run) -> Iterator[Diagnostic]:
    for each in verdicts:
        yield from check_rule(each, run) if isinstance(each, Rule) else each


def _noted(target: Target, artifact: Artifact, notes: Notes, at: int) -> Iterator[Document]:
    """The documents of a file, the first of which is the run's number `at`."""
    for each in documents_of(target, artifact):
        is_data = artifact.format in ("json", "yaml")
        document = Noted(each, notes, at) if is_data else each
        seen = (document, *views(document))
        yield document
        for number, view in enumerate(seen[1:], at + 1):
            yield Noted(view, notes, number) if is_data else view
        at += len(seen)


def _changed(before: Run, after: Run) -> frozenset[Cell] | None:
    """What two runs with documents of the same kinds differ in; None: that cannot be told."""
    found: set[Cell] = set()
    for at, (old, new) in enumerate(zip(before.documents, after.documents, strict=True)):
        if old is new:
            continue
        if not (isinstance(old, Noted) and isinstance(new, Noted)):
            return None
        found.add((at, EVERYTHING))
        if list(old.written) != list(new.written):
            found.add((at, EVERY_KEY))
        found.update((at, path) for path in _differing(old.written, new.written))
    was, now = before.written.entries, after.written.entries
    slots = (slot for slot in was.keys() | now.keys() if not _alike(was.get(slot), now.get(slot)))
    return frozenset((*found, *((SLOT, slot) for slot in slots)))


def _differing(old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    return (path for path in old.keys() | new.keys() if old.get(path) != new.get(path))


def _alike(old: tuple[Definition, ...] | None, new: tuple[Definition, ...] | None) -> bool:
    """Whether a slot's definitions say the same; where they stand are cells of their own."""
    if old is None or new is None or len(old) != len(new):
        return False
    return all(
        one is other or _words(one) == _words(other) for one, other in zip(old, new, strict=True)
    )


def _words(each: Definition) -> tuple[Any, ...]:
    return each.rank, each.author, each.reason, repr(each.value), each.span is None


def _as_before(
    files: _Files, name: str, changed: frozenset[Cell], run: Surrounded
) -> _Found | None:
    """What a rule found in other files, where it read nothing that has changed since."""
    read = files.quiet.get(name)
    if read is not None:
        return _Found((), {}, read) if read.isdisjoint(changed) else None
    found = files.others[name].recall(run.known)
    return found if found is not None and found.read.isdisjoint(changed) else None


def _judged(subject: str, name: str, run: Surrounded) -> _Found:
    """What a rule finds in a run, with what it asks and reads for that."""
    run.begin()
    proven = proof(name, run.told, run.answer)
    if proven is not None:
        for question in proven:
            run.note(question)
        return _Found((), run.asked, frozenset(run.read))
    run.begin()
    verdict = _verdict(rule_of(subject, name), run)
    return _Found(verdict, run.asked, frozenset(run.read))


def _verdict(rule: Rule, run: Surrounded) -> Verdict:
    """What a rule finds; the rule where that is told of surroundings, or cannot be watched."""
    try:
        found = tuple(check_rule(rule, run))
    except Exception:  # noqa: BLE001  what stands for surroundings may fail a rule in any way
        return rule
    return rule if found and run.asked else found


def _moved(run: Run, environment: Environment) -> Run:
    """The same files in other surroundings, without working out again what these do not touch."""
    moved = Run(run.documents, environment, run.targets)
    moved.__dict__.update({name: run.__dict__[name] for name in _KEPT if name in run.__dict__})
    return moved
