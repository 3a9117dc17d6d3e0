"""What rules find in the files of a fleet: files are judged once, and hardware for each pair.

Clusters differ in much that no file says. A rule says whether it asks for hardware
(`Rule.hardware`); what the others find is the same wherever the files are used.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.facts import Facts, ResolvedModel
from tunec.compiler.ir.plan import Plan
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.diagnostics import findings_of
from tunec.compiler.lints.emitted import around, asked_of, run_of, software_of, told_of
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.rule import Rule
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact


class _Judged(Struct, frozen=True):
    """Files that were judged, with all that their judgement rests on but hardware."""

    artifacts: Sequence[Artifact]
    model: ResolvedModel
    run: LintContext
    found: tuple[Diagnostic, ...]
    """By rules that do not ask for hardware."""
    of_hardware: tuple[Rule, ...]

    def on(self, environment: Environment) -> list[Diagnostic]:
        """What every rule finds where the files are used, in the order of rules."""
        run = self.run.moved(environment)
        found = (each for rule in self.of_hardware for each in findings_of(rule, run))
        return sorted((*self.found, *found), key=lambda each: each.id)


class Remembered(Struct):
    """What was found in the files of one spec."""

    _judged: dict[tuple[Any, ...], _Judged] = field(default_factory=dict)
    """By the identity of files and model, which are kept with them."""
    _software: dict[tuple[Any, ...], dict[str, str]] = field(default_factory=dict)
    """Of each target in a version, with what is named beside it."""
    _rules: dict[tuple[Any, ...], tuple[Rule, ...]] = field(default_factory=dict)
    """That may speak of files of some kinds, for the same versions."""

    def forget(self) -> None:
        """Begin with another spec."""
        self._judged.clear()

    def objections(
        self, asked: Asked, artifacts: Sequence[Artifact], facts: Facts, plan: Plan
    ) -> tuple[Diagnostic, ...]:
        """As `tunec.compiler.lints.emitted.objections`."""
        target, version = asked
        dialect = (target.name, version, tuple(facts.versions.items()))
        if dialect not in self._software:
            self._software[dialect] = software_of(target, version, facts.versions)
        environment = around(target, self._software[dialect], facts, plan)
        files = (id(each.values) for each in artifacts)
        key = (*dialect, id(facts.model), environment.world, *files)
        if key not in self._judged:
            run = run_of(target, artifacts, environment, plan)
            rules = self._asked(run, dialect)
            self._judged[key] = _judge(artifacts, facts.model, run, rules)
        return told_of(self._judged[key].on(environment), target, plan)

    def _asked(self, run: LintContext, dialect: tuple[Any, ...]) -> tuple[Rule, ...]:
        key = (*dialect, run.kinds, run.keys)
        if key not in self._rules:
            self._rules[key] = tuple(asked_of(run))
        return self._rules[key]


def _judge(
    artifacts: Sequence[Artifact], model: ResolvedModel, run: LintContext, rules: Sequence[Rule]
) -> _Judged:
    found = (each for rule in rules if not rule.hardware for each in findings_of(rule, run))
    of_hardware = tuple(rule for rule in rules if rule.hardware)
    return _Judged(artifacts, model, run, tuple(found), of_hardware)
