"""What a target's files say of a plan, and what its emission says that it cannot."""

from collections.abc import Iterable

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Artifact, Target


def said_in(
    target: Target, plan: Plan, version: Version, artifacts: Iterable[Artifact]
) -> set[str]:
    """The slots that rows of the emitted files say of this plan."""
    dialect, names = target.dialect(version), {each.name for each in artifacts}
    return {
        slot
        for file in target.files
        if file.name in names
        for entry in file.entries
        if entry.holds_in(dialect) and entry.when(plan)
        for slot in entry.slots
    }


def lost_in(diagnostics: Iterable[Diagnostic]) -> set[str]:
    """The slots that a target refuses, has no word for, or names in a note beside one."""
    every = list(diagnostics)
    lost = [each for each in every if each.id == "E0901"]
    refused = {label.path for each in every if each.id == "E0905" for label in each.labels}
    words = [word.strip(",") for each in lost for note in each.notes for word in note.split()]
    return (
        refused | {each.labels[0].path for each in lost} | {word for word in words if word in SLOTS}
    )
