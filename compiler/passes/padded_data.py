"""Reports what batches lose to padding, and what packing or grouping by length would save."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.analyses.counting import Epoch
from tunec.compiler.analyses.packing import Lengths, PackingStrategy, packed_rows
from tunec.compiler.analyses.padding import grouped_length, mean_length, padded_length
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Scribe
from tunec.compiler.passes.fit.timing import step_seconds, step_seconds_of

_WORTH: Final = 0.1
"""Share of a batch's tokens from which padding is reported: a judgement."""


def check_padding(scribe: Scribe, draft: Draft) -> None:
    """Report how much of a padded batch is padding, if the sample lengths are known."""
    lengths = scribe.facts.lengths
    if lengths is None or lengths.is_mean or draft.data.packing or draft.generation.samples:
        return
    sequence, micro = draft.data.sequence, draft.batch.micro
    if not sequence:
        return
    mean, padded = (
        mean_length(lengths.counts, sequence),
        padded_length(lengths.counts, sequence, micro),
    )
    wasted = 1 - mean / padded
    if wasted < _WORTH:
        return
    scribe.report(
        "padding-wasted",
        "note",
        f"{wasted:.0%} of what a batch computes is padding",
        "data.lengths",
        notes=(_sum(mean, padded, micro), *_savings(scribe.facts, draft, lengths)),
        help=_remedy(draft),
    )


def _sum(mean: float, padded: float, micro: int) -> str:
    return f"samples have {mean:,.0f} tokens in the mean, the longest of {micro} has {padded:,.0f}"


def _remedy(draft: Draft) -> str:
    if draft.model.kind == "causal-lm" and draft.objective.kind == "sft":
        return "set data.packing, or let the trainer group samples by length"
    return "let the trainer group samples by length"


def _savings(facts: Facts, draft: Draft, lengths: Lengths) -> Iterator[str]:
    """The time of an epoch for each way of making batches."""
    samples, seconds = draft.data.samples, step_seconds(facts, draft)
    if not samples or not seconds:
        return
    sequence, batch = draft.data.sequence, draft.batch
    grouped = grouped_length(lengths.counts, sequence, batch.micro, batch.accumulation)
    steps = _steps(facts, draft, samples)
    faster = step_seconds_of(facts, draft, grouped)
    if faster and faster < seconds:
        yield f"grouped by length, a step takes about {_part(faster, seconds)} of the time"
    if draft.model.kind != "causal-lm" or draft.objective.kind != "sft":
        return
    how: PackingStrategy = facts.counting.packing
    rows = packed_rows(lengths, samples, sequence, how).count
    packed = step_seconds_of(facts, draft, sequence)
    if packed and rows:
        fewer = _steps(facts, draft, rows)
        share = _part(packed * fewer, seconds * steps)
        yield (
            f"packed ({how}), {samples:,} samples are {rows:,} rows: an epoch of {fewer:,} steps "
            f"instead of {steps:,} takes about {share} of the time"
        )


def _steps(facts: Facts, draft: Draft, rows: int) -> int:
    batch, parallel = draft.batch, draft.parallel
    epoch = Epoch(rows, batch.micro, batch.accumulation, parallel.data, parallel.sequence)
    return facts.counting.steps(epoch, 1)


def _part(less: float, whole: float) -> str:
    return f"{less / whole:.0%}"
