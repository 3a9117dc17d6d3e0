"""Emission for many plans: what depends on the same slots with the same values is written once.

Emission is a pure function of the plan. While it runs, the plan notes which slots are asked;
another plan of the same spec with the same values there would be asked the same and give the same,
so it is answered from memory. Clusters differ in much that no file says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, cast

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.emit import emit
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.watched import WatchedPlan
from tunec.compiler.lints.remembered import Remembered
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact

_HEADER: Final = "tunec: the header of this plan"
"""What stands in a remembered text where each plan has its own header."""

Emitted = tuple[tuple[Artifact, ...], tuple[Diagnostic, ...]]
_Asking = tuple[str, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class _Answers:
    """Answers that depend on the same slots, by the values of these."""

    values: Callable[[Plan], Any]
    by_values: dict[Any, Emitted] = field(default_factory=dict)


@dataclass(slots=True)
class Emissions:
    """What was emitted for one spec at a time, by target and version."""

    _spec: str = ""
    _known: dict[_Asking, dict[tuple[str, ...], _Answers]] = field(default_factory=dict)
    _judged: Remembered = field(default_factory=Remembered)

    def emit(
        self,
        spec: str,
        asked: Asked,
        plan: Plan,
        software: Mapping[str, str],
        header: tuple[str, ...],
    ) -> Emitted:
        """Write a plan of a spec in the words of a target, as `emit` does."""
        if spec != self._spec:
            self._known.clear()
            self._judged.forget()
            self._spec = spec
        target, version = asked
        key = (target.name, str(version), tuple(sorted(software.items())))
        answers = self._known.setdefault(key, {})
        found = _remembered(answers, plan)
        if found is None:
            watched = WatchedPlan(plan)
            stands_for = cast("Plan", watched)
            found = emit(target, stands_for, version, software=software, header=(_HEADER,))
            _remember(answers, tuple(watched.asked), plan, found)
        artifacts, diagnostics = found
        return tuple(_with_header(each, header) for each in artifacts), diagnostics

    def objections(
        self, asked: Asked, artifacts: Sequence[Artifact], facts: Facts, plan: Plan
    ) -> tuple[Diagnostic, ...]:
        """What rules find wrong with what was emitted for the spec."""
        return self._judged.objections(asked, artifacts, facts, plan)


def _remembered(known: Mapping[tuple[str, ...], _Answers], plan: Plan) -> Emitted | None:
    for answers in known.values():
        found = answers.by_values.get(answers.values(plan))
        if found is not None:
            return found
    return None


def _remember(
    known: dict[tuple[str, ...], _Answers], slots: tuple[str, ...], plan: Plan, found: Emitted
) -> None:
    if slots not in known:
        places = (SLOTS[slot] for slot in slots)
        known[slots] = _Answers(attrgetter(*(f"{at.group}.{at.attribute}" for at in places)))
    answers = known[slots]
    answers.by_values[answers.values(plan)] = found


def _with_header(artifact: Artifact, header: tuple[str, ...]) -> Artifact:
    """The text with the lines of this plan's header where the other one stands."""
    at = artifact.text.find(_HEADER)
    if at < 0:
        return artifact
    start = artifact.text.rfind("\n", 0, at) + 1
    before, after = artifact.text[start:at], artifact.text[at + len(_HEADER) :]
    lines = (f"\n{before}".join(header), after)
    return replace(artifact, text=artifact.text[:at] + "".join(lines))
