"""Emission for many plans: what depends on the same slots with the same values is written once.

Emission is a pure function of the plan, and so is each file of it. While it runs, the plan notes
which slots are asked; another plan of the same spec with the same values there would be asked the
same and give the same, so it is answered from memory. Clusters differ in much that no file says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.emit import Draft, draft_of, emit
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.recollection import Recollection
from tunec.compiler.ir.watched import WatchedPlan
from tunec.compiler.lints.remembered import Remembered
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact, Dialect, File

_HEADER: Final = "tunec: the header of this plan"
"""What stands in a remembered text where each plan has its own header."""

Emitted = tuple[tuple[Artifact, ...], tuple[Diagnostic, ...]]


@dataclass(slots=True)
class _Dialect:
    """What was written in one dialect of a target, by the slots that were asked."""

    whole: Recollection[str, Emitted] = field(default_factory=Recollection)
    files: dict[str, Recollection[str, Draft]] = field(default_factory=dict)

    def drafted(self, file: File, plan: Plan, dialect: Dialect, header: Sequence[str]) -> Draft:
        """A file of a plan, as `draft_of` writes it."""
        known = self.files.setdefault(file.name, Recollection())
        found = known.recall(plan.__getitem__)
        if found is None:
            watched = WatchedPlan(plan)
            found = draft_of(file, cast("Plan", watched), dialect, header)
            known.keep(watched.asked, found)
        return found


@dataclass(slots=True)
class Emissions:
    """What was emitted for one spec at a time, by target and version."""

    _spec: str = ""
    _known: dict[tuple[Any, ...], _Dialect] = field(default_factory=dict)
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
        known = self._known.setdefault(key, _Dialect())
        found = known.whole.recall(plan.__getitem__)
        if found is None:
            watched = WatchedPlan(plan)
            found = emit(
                target,
                cast("Plan", watched),
                version,
                software=software,
                header=(_HEADER,),
                drafting=known.drafted,
            )
            known.whole.keep(watched.asked, found)
        artifacts, diagnostics = found
        return tuple(_with_header(each, header) for each in artifacts), diagnostics

    def objections(
        self, asked: Asked, artifacts: Sequence[Artifact], facts: Facts, plan: Plan
    ) -> tuple[Diagnostic, ...]:
        """What rules find wrong with what was emitted for the spec."""
        return self._judged.objections(asked, artifacts, facts, plan)


def _with_header(artifact: Artifact, header: tuple[str, ...]) -> Artifact:
    """The text with the lines of this plan's header where the other one stands."""
    at = artifact.text.find(_HEADER)
    if at < 0:
        return artifact
    start = artifact.text.rfind("\n", 0, at) + 1
    before, after = artifact.text[start:at], artifact.text[at + len(_HEADER) :]
    lines = (f"\n{before}".join(header), after)
    return replace(artifact, text=artifact.text[:at] + "".join(lines))
