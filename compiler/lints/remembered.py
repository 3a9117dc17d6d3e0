"""What rules find in the files of a fleet, asked again only where what it rests on differs.

Clusters differ in much that no file says, and their files in little. What a rule found is kept with
what it read of the files and asked of their surroundings (`tunec.compiler.lints.surrounded`), in
that order: it holds for all files, of whatever spec, and all surroundings that say the same there.
"""

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.facts import Facts, ResolvedModel
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.recollection import Recollection
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.emitted import (
    EXEMPT,
    around,
    documents_of,
    objections,
    software_of,
    told_of,
)
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.index import rule_of
from tunec.compiler.lints.noted import EVERYTHING, Noted, Notes, Read
from tunec.compiler.lints.replies import Replies, Said
from tunec.compiler.lints.rule import Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.silence import known_rules, proof
from tunec.compiler.lints.sparing import Sparing
from tunec.compiler.lints.standing import Grounds, Revisited, Standing
from tunec.compiler.lints.surrounded import Surrounded
from tunec.compiler.lints.telling import check_rule
from tunec.compiler.lints.views import views
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact, Target

Verdict = Rule | tuple[Diagnostic, ...]
"""What a rule finds; or the rule itself, where it has to be asked each time."""

_MOST_RESULTS: Final = 512
"""Of a rule for files of a kind; then they are forgotten."""
_TRIAL: Final = 64
"""Results of which each has to be recalled once on average, for a rule to be worth remembering."""
_MOST_CELLS: Final = 24
"""Of a document, beyond which a rule is taken to read all of it."""
_MOST_KINDS: Final = 64
_MOST_HARDWARE: Final = 4096


@dataclass(frozen=True, slots=True)
class _Found:
    """What a rule finds."""

    verdict: Verdict
    grounds: Grounds


@dataclass(slots=True)
class _Memory:
    """What one rule found in files of a kind."""

    subject: str
    name: str
    found: Recollection[Read, _Found] = field(default_factory=Recollection)
    recalled: int = 0
    """How often something was recalled since all was forgotten."""
    is_asked: bool = False
    """Whether it looks at what is never the same: it is sooner asked than remembered."""

    def recall(self, told: Replies) -> _Found | None:
        """What it found where as much was told."""
        found = self.found.recall(told.__getitem__)
        self.recalled += found is not None
        return found

    def judge(self, run: Surrounded, told: Replies) -> _Found:
        """What it finds in a run, for the first time."""
        size = self.found.size
        if size == _MOST_RESULTS or (size == _TRIAL and self.recalled < size):
            self.is_asked = self.recalled < size
            self.found, self.recalled = Recollection(), 0
        verdict, reads = _verdict(self, run), _in_fewer_words(run.read)
        found = _Found(verdict, Grounds.of(reads))
        if not self.is_asked:
            self.found.keep({read: told[read] for read in reads}, found)
        return found


def _in_fewer_words(read: Iterable[Read]) -> dict[Read, None]:
    """The same where of documents of which much was read everything was."""
    counted = Counter(each[0] for each in read if isinstance(each[0], int))
    return {
        ((each[0], EVERYTHING) if counted.get(each[0], 0) > _MOST_CELLS else each): None
        for each in read
    }


@dataclass(slots=True)
class _Kind:
    """Files that differ only in their keys, for the same versions of their readers."""

    memories: tuple[_Memory, ...]
    """Of all rules."""
    standing: Standing
    rows: dict[str, tuple[Read, ...]] = field(default_factory=dict)
    """The cells of all rows that say a slot."""
    slots: dict[Read, set[str]] = field(default_factory=dict)
    """The same the other way round."""


@dataclass(slots=True)
class _Files:
    """Files that were judged before."""

    artifacts: Sequence[Artifact]
    kind: _Kind
    said: Said
    standing: Revisited | None = None
    """What rules found in them; None: they are asked for the first time."""


@dataclass(slots=True)
class Remembered:
    """What was found so far; files are kept for one spec at a time."""

    _kinds: dict[tuple[Any, ...], _Kind] = field(default_factory=dict)
    _hardware: dict[tuple[Any, ...], tuple[Any, dict[Read, Any]]] = field(default_factory=dict)
    """What was asked of a cluster and the devices that are used, with both."""
    _models: list[ResolvedModel] = field(default_factory=list)
    _files: dict[tuple[Any, ...], _Files] = field(default_factory=dict)
    """By the identity of their values, which are kept with them."""
    _documents: dict[Any, tuple[Artifact, tuple[Document, ...]]] = field(default_factory=dict)
    _software: dict[tuple[Any, ...], dict[str, str]] = field(default_factory=dict)
    """Of each target in a version, with what is named beside it."""
    _worked_out: dict[Any, dict[str, dict[Any, Any]]] = field(default_factory=dict)
    """What runs work out of each document, by their releases."""
    _notes: Notes = field(default_factory=Notes)

    def forget(self) -> None:
        """Begin with another spec."""
        self._files.clear()
        self._documents.clear()
        self._worked_out.clear()

    def objections(
        self, asked: Asked, artifacts: Sequence[Artifact], facts: Facts, plan: Plan
    ) -> tuple[Diagnostic, ...]:
        """As `tunec.compiler.lints.emitted.objections`."""
        if plan.runtime.extra:
            return objections(asked, artifacts, facts, plan)
        target, version = asked
        dialect = (target.name, version, tuple(facts.versions.items()))
        if dialect not in self._software:
            self._software[dialect] = software_of(target, version, facts.versions)
        environment = around(target, self._software[dialect], facts, plan)
        key = (*dialect, *(id(each.values) for each in artifacts))
        files = self._files.get(key)
        if files is None:
            run = self._run(target, artifacts, environment)
            kind = self._kind(run, dialect)
            files = self._files[key] = _Files(artifacts, kind, Said(run, kind.rows, kind.slots))
        hardware, model = self._asked(environment), self._model(facts.model)
        told = Replies(files.said, environment, hardware, model)
        return told_of(_spoken(self._found(files, told), told), target, plan)

    def _model(self, model: ResolvedModel) -> int:
        """The number of a model among those that were met."""
        for is_it in (operator.is_, operator.eq):
            for at, each in enumerate(self._models):
                if is_it(each, model):
                    return at
        self._models.append(model)
        return len(self._models) - 1

    def _asked(self, environment: Environment) -> dict[Read, Any]:
        """What was asked of some hardware so far."""
        parts = (environment.cluster, *environment.devices.values())
        key = tuple(map(id, parts))
        if key not in self._hardware:
            if len(self._hardware) == _MOST_HARDWARE:
                self._hardware.clear()
            self._hardware[key] = parts, {}
        return self._hardware[key][1]

    def _run(self, target: Target, artifacts: Sequence[Artifact], beside: Environment) -> Sparing:
        """Files as one run, of which those that stood in other runs are not read again."""
        every: list[Document] = []
        for each in artifacts:
            key = target.name, id(each.values), len(every)
            if key not in self._documents:
                noted = _noted(target, each, self._notes, len(every))
                self._documents[key] = each, tuple(noted)
            every += self._documents[key][1]
        run = Sparing(tuple(every), beside, {target.name: target})
        releases = tuple(run.releases.values())
        run.__dict__.update(
            self._worked_out.setdefault(releases, {"_said": {}, "_faults": {}}), _by_slot={}
        )
        return run

    def _kind(self, run: Run, dialect: tuple[Any, ...]) -> _Kind:
        """The kind of a run's files."""
        documents = tuple((each.name, each.kind, _unwatched(each)) for each in run.documents)
        key = (dialect, documents, tuple(run.releases.values()))
        if key not in self._kinds:
            if len(self._kinds) == _MOST_KINDS:
                self._kinds.clear()
            rules = known_rules().items()
            memories = tuple(_Memory(at, name) for name, at in rules if name not in EXEMPT)
            self._kinds[key] = _Kind(memories, Standing(set(range(len(memories)))))
        return self._kinds[key]

    def _found(self, files: _Files, told: Replies) -> Iterator[Verdict]:
        """What rules find, but for those that would find nothing again."""
        memories, standing = files.kind.memories, files.standing or files.kind.standing
        for place in standing.asked(told):
            found = self._recalled(memories[place], told)
            if found.verdict == ():
                standing.settle(place, found.grounds, told)
            else:
                standing.unsettle(place)
                yield found.verdict
        if files.standing is None:
            files.standing = files.kind.standing.here()

    def _recalled(self, memory: _Memory, told: Replies) -> _Found:
        """What a rule finds, recalled where it can be."""
        return memory.recall(told) or memory.judge(self._surrounded(told), told)

    def _surrounded(self, told: Replies) -> Surrounded:
        if told.surrounded is None:
            told.surrounded = Surrounded(told.run, self._notes, told.__getitem__)
        return told.surrounded


def _spoken(verdicts: Iterable[Verdict], told: Replies) -> Iterator[Diagnostic]:
    for each in verdicts:
        yield from check_rule(each, told.run) if isinstance(each, Rule) else each


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


def _unwatched(document: Document) -> str:
    """What cannot be watched of a document: all of a script."""
    return "" if isinstance(document, Noted) else document.text


def _verdict(memory: _Memory, run: Surrounded) -> Verdict:
    """What a rule finds, noting what it reads for that; the rule where that cannot be watched."""
    run.begin()
    proven = proof(memory.name, run.told, run.answer)
    if proven is not None:
        for question in proven:
            run.note(question)
        return ()
    run.begin()
    rule = rule_of(memory.subject, memory.name)
    try:
        return tuple(check_rule(rule, run))
    except Exception:  # noqa: BLE001  what stands for surroundings may fail a rule in any way
        return rule
