"""What rules find in the same files on many clusters: asked again only where an answer differs.

A fleet writes the same files for clusters that differ in what no file says. What a rule asked of
the surroundings before it found nothing is kept; on another cluster that answers the same, it need
not be asked again (`tunec.compiler.lints.questions`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Plan
from tunec.compiler.lints.emitted import EXEMPT, environment_of, run_of, spoken_by, told_of
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.index import rule_of
from tunec.compiler.lints.questions import Question, answer
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.silence import known_rules, proofs
from tunec.compiler.lints.telling import check_rule
from tunec.compiler.lints.watching import trail
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact
from tunec.schemas.frozen import dataclass

Proof = tuple[tuple[Question, str], ...]
"""Questions about the surroundings with the answers on which a rule finds nothing."""

_KEPT: Final = ("releases", "deepspeed_reader", "written", "_places", "_faults")
"""What a run works out from its files and versions alone."""


class _Files:
    """Files that were judged before; what silences each rule is found when they come again."""

    def __init__(self, values: tuple[Any, ...], run: Run) -> None:
        self.values = values
        self.run = run

    @cached_property
    def silent(self) -> dict[str, Proof]:
        """The rules that find nothing, with what they asked of the surroundings."""
        return dict(_silent(self.run))


@dataclass(frozen=True, slots=True)
class Remembered:
    """What was found of one spec's files so far."""

    _known: dict[tuple[Any, ...], _Files] = field(default_factory=dict)

    def forget(self) -> None:
        """Begin with another spec."""
        self._known.clear()

    def objections(
        self, asked: Asked, artifacts: Sequence[Artifact], facts: Facts, plan: Plan
    ) -> tuple[Diagnostic, ...]:
        """As `tunec.compiler.lints.emitted.objections`."""
        target, version = asked
        environment = environment_of(target, version, facts, plan)
        values = tuple(each.values for each in artifacts)
        key = (target.name, version, facts.model.path, *map(id, values), *facts.versions.items())
        if key not in self._known:
            run = run_of(target, artifacts, environment)
            self._known[key] = _Files(values, run)
            return told_of(spoken_by(run), target, plan)
        known = self._known[key]
        run = _moved(known.run, environment)
        return told_of(_again(known, run), target, plan)


def _silent(run: Run) -> Iterator[tuple[str, Proof]]:
    """The rules that find nothing in a run, with what they asked of its surroundings."""
    subjects = known_rules()
    for name, proof in proofs(run, subjects):
        asked = _trodden(subjects[name], name, run) if proof is None else proof
        if asked is not None:
            yield name, tuple((q, told) for q, told in asked.items() if _is_around(q, told))


def _trodden(subject: str, name: str, run: Run) -> Mapping[Question, str] | None:
    asked, is_silent = trail(partial(check_rule, rule_of(subject, name)), run)
    return asked if is_silent else None


def _is_around(question: Question, told: str) -> bool:
    """Whether an answer may differ where files and versions do not."""
    kind, about = question[0], question[1] if len(question) > 1 else ""
    if kind == "at":
        return about.startswith(("environment", "data_parallel"))
    return "parallel.world" in question or (kind == "effective" and told.startswith("filled"))


def _again(known: _Files, run: Run) -> Iterator[Diagnostic]:
    answers: dict[Question, str] = {}
    for name, subject in known_rules().items():
        proof = known.silent.get(name)
        if name in EXEMPT or (proof is not None and _holds(proof, run, answers)):
            continue
        yield from check_rule(rule_of(subject, name), run)


def _holds(proof: Proof, run: Run, answers: dict[Question, str]) -> bool:
    for question, told in proof:
        if question not in answers:
            answers[question] = answer(run, question)
        if answers[question] != told:
            return False
    return True


def _moved(run: Run, environment: Environment) -> Run:
    """The same files in other surroundings, without working out again what these do not touch."""
    moved = Run(run.documents, environment, run.targets)
    moved.__dict__.update({name: run.__dict__[name] for name in _KEPT if name in run.__dict__})
    return moved
