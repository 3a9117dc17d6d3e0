"""Reports on the data: too few for a batch or seen too often, and what batches lose to padding."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.analyses.counting import Epoch
from tunec.compiler.analyses.packing import Lengths, PackingStrategy, packed_rows
from tunec.compiler.analyses.padding import grouped_length, mean_length, padded_length
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Scribe
from tunec.compiler.passes.fit.timing import step_seconds, step_seconds_of

_FEW: Final = 10
"""Runs with fewer steps hardly change the model: a judgement, reported as a note."""
_MANY: Final = {"diffusion": 1000.0}
_MANY_OF_TEXT: Final = 100.0
"""Epochs above which a warning is given. Text is memorised after a few (Muennighoff et al., arXiv
2305.16264: little is gained after 4, nothing after 40), though VisualGLM's own recipe makes 60; a
subject of a few images takes hundreds (DreamBooth, arXiv 2208.12242: 1,000 steps over 3 to 5
images)."""


def check_data(scribe: Scribe, draft: Draft, steps: int | None, passes: float | None) -> None:
    """Report data that are too few for the batch or for the steps.

    `steps` of the run and `passes` over the data are None if they are unknown.
    """
    rows = draft.data.samples
    a_step = draft.batch.global_ // max(draft.generation.samples, 1)
    if rows is not None and rows < a_step:
        _unfilled(scribe, draft, rows, a_step)
    elif steps is not None and steps < _FEW and not _is_asked(scribe):
        _few_steps(scribe, draft, steps)
    if rows is None or steps is None or passes is None:
        return
    if passes > _MANY.get(draft.model.kind, _MANY_OF_TEXT):
        _many_epochs(scribe, rows, steps, passes)


def _is_asked(scribe: Scribe) -> bool:
    """Whether the number of steps is given, and therefore intended."""
    return scribe.facts.spec.train.steps is not None or "schedule.steps" in scribe.facts.pins


def _unfilled(scribe: Scribe, draft: Draft, rows: int, a_step: int) -> None:
    batch, answers = draft.batch.global_, draft.generation.samples
    if answers:
        scribe.error(
            "E0804",
            f"{rows} prompts do not fill a step: a global batch of {batch} holds {answers} "
            f"answers to {a_step} prompts",
            "data.samples",
            notes=("trl's RepeatSampler drops an incomplete step, so no data is left",),
            help=f"lower batch.global to {rows * answers} or less, or give more prompts",
        )
        return
    if _makes_no_step(scribe.facts, draft, rows):
        trainer = scribe.facts.counting.trainer
        scribe.error(
            "E0809",
            f"{trainer} makes no step of {rows} sample{'' if rows == 1 else 's'}: it leaves out "
            f"what does not divide over processes and batches, and a step has {batch} samples",
            "data.samples",
            help=f"lower batch.global to {rows} or less, or give more data",
        )
        return
    scribe.report(
        "few-samples",
        "warning",
        f"{rows} sample{'' if rows == 1 else 's'} cannot fill a batch of {batch}",
        "data.samples",
        notes=(f"each epoch is one step, whose batch has {rows} of {batch} samples",),
        help=f"lower batch.global to {rows} or less, or give more data",
    )


_OFTEN: Final = 1_000_000
"""Passes after which a trainer that carries an epoch's rest over has filled a step."""


def _makes_no_step(facts: Facts, draft: Draft, rows: int) -> bool:
    """Whether no number of passes over so few samples fills a step."""
    return not draft.data.packing and _steps(facts, draft, rows, _OFTEN) == 0


def _few_steps(scribe: Scribe, draft: Draft, steps: int) -> None:
    scribe.report(
        "few-steps",
        "note",
        f"the run makes {steps} optimizer step{'' if steps == 1 else 's'} of "
        f"{draft.batch.global_} samples",
        "data.samples",
        help="lower batch.global, or raise train.epochs",
    )


def _many_epochs(scribe: Scribe, rows: int, steps: int, passes: float) -> None:
    at = "train.steps" if scribe.facts.spec.train.steps is not None else "train.epochs"
    scribe.report(
        "many-epochs",
        "warning",
        f"{steps:,} steps are {passes:,.0f} passes over {rows:,} samples",
        at,
        notes=(f"{steps:,} steps / {steps / passes:,.0f} of one pass",),
        help=f"lower {at}, or give more data",
    )


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


_NOTICED: Final = 0.99
"""Share of a step's time from which on grouping by length saves nothing."""


def _savings(facts: Facts, draft: Draft, lengths: Lengths) -> Iterator[str]:
    """The time of an epoch for each way of making batches."""
    samples, seconds = draft.data.samples, step_seconds(facts, draft)
    if not samples or not seconds:
        return
    sequence, batch = draft.data.sequence, draft.batch
    grouped = grouped_length(lengths.counts, sequence, batch.micro, batch.accumulation)
    steps = _steps(facts, draft, samples)
    faster = step_seconds_of(facts, draft, grouped)
    if faster and faster < _NOTICED * seconds:
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


def _steps(facts: Facts, draft: Draft, rows: int, epochs: int = 1) -> int:
    batch, parallel = draft.batch, draft.parallel
    epoch = Epoch(rows, batch.micro, batch.accumulation, parallel.data, parallel.sequence)
    return facts.counting.steps(epoch, epochs)


def _part(less: float, whole: float) -> str:
    return f"{less / whole:.0%}"
