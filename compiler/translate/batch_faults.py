"""Errors about batches that a target's defaults would change."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.target import Target
from tunec.compiler.translate.drafts import Draft
from tunec.compiler.translate.partial import Partial
from tunec.compiler.translate.sources import Sources

_PARTS: Final = ("batch.micro", "batch.accumulation", "parallel.data")
_STEP: Final = "batch.global"


def other_steps(
    target: Target, drafts: Sequence[Draft], known: Partial, filled: Partial, sources: Sources
) -> Iterator[Diagnostic]:
    """An error if defaults for parts of the batch make another one than the files set."""
    rows = [row for draft in drafts for row in draft.rows]
    is_divided = any(_PARTS[0] in row.entry.slots for row in rows)
    is_whole = any(_STEP in row.entry.slots for row in rows)
    total: Any = filled.values.get(_STEP)
    parts: list[Any] = [filled.values.get(slot) for slot in _PARTS]
    if not is_divided or is_whole or total is None or not sources.is_written(_STEP):
        return
    step = None if None in parts else prod(parts)
    if step not in (None, total):
        slots = " x ".join(f"{slot} {n}" for slot, n in zip(_PARTS, parts, strict=True))
        yield _of_other_size(
            f"{target.name} would train on {step} samples a step, and not on {total}",
            f"{slots} = {step}",
            "give a --set batch.micro=VALUE that divides it over the processes",
            sources,
        )
    elif step is None and _PARTS[1] not in known.values:
        yield _of_other_size(
            f"a step of {total} samples is divided over an unknown number of processes",
            f"{target.name} is given the samples of each process",
            "give the number with --world-size",
            sources,
        )


def _of_other_size(message: str, note: str, help: str, sources: Sources) -> Diagnostic:
    return Diagnostic("E0906", "error", message, (sources.label(_STEP),), (note,), help=help)
