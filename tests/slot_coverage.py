"""What a target's files say of a plan, and what its emission says that it cannot."""

from collections.abc import Iterable

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.emit import CHOICES
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
    """The slots that a target has no word for, and those that go with a choice among them."""
    told = {each.labels[0].path for each in diagnostics if each.id == "E0901"}
    groups = {choice.partition(".")[0] for choice in CHOICES if choice in told}
    return told | {slot for slot in SLOTS if slot.partition(".")[0] in groups}
