"""schedule_training: the length of the run, its learning rate, and when it saves and evaluates."""

import math
from typing import Final, NamedTuple

from tunec.compiler.analyses.cadence import (
    checkpoint_bytes,
    evaluation_steps,
    saving_steps,
    steps_between,
)
from tunec.compiler.analyses.counting import Epoch
from tunec.compiler.analyses.packing import Rows, answered_rows, packed_rows, short_rows
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Scribe, as_given, slot, spec
from tunec.compiler.passes.data_reports import check_data, check_padding
from tunec.compiler.passes.fit.timing import step_seconds
from tunec.schemas.terms import ScheduleKind
from tunec.schemas.units import format_bytes

_LOG_LINES: Final = 100
"""Log lines of a run: enough for a curve, and few enough to read."""
_WARMUP_OF_DIFFUSION: Final = 100
"""Warm-up in steps: trainers of diffusion models take no shares, and the examples of SimpleTuner
4.10.1 (simpletuner/examples/*/config.json) have 10 to 250."""
_LARGE: Final = 20 * 2**30
"""Bytes of a checkpoint from which its size is reported: a judgement."""


class _Length(NamedTuple):
    """The length of the run, as far as it is known."""

    epochs: float | None
    steps: int | None
    """The exact number; None: unknown."""
    estimate: int | None
    passes: float | None
    """Epochs, given or computed from the steps; None: unknown."""

    @property
    def expected(self) -> int | None:
        """The number of steps, exact or estimated."""
        return self.steps or self.estimate


def schedule_training(facts: Facts, draft: Draft) -> Outcome:
    """Decide the run's length as its trainer counts it, and when it logs, saves and evaluates."""
    scribe = Scribe(facts)
    length = _length(scribe, draft)
    kind, why = _kind(facts, draft)
    kind = scribe.say("schedule.kind", kind, why, spec("train.schedule"))
    train = facts.spec.train
    why = as_given(train, "schedule_arguments", "not given")
    told = tuple(sorted(train.schedule_arguments.items()))
    scribe.say("schedule.arguments", told, why, spec("train.schedule_arguments"))
    _warmup(scribe, draft, kind, length)
    expected = length.expected
    log = max(1, expected // _LOG_LINES) if expected else 10
    scribe.say("schedule.log_steps", log, f"about {_LOG_LINES} lines over the run")
    save = _saving(scribe, draft, length)
    _evaluation(scribe, draft, length, save)
    check_data(scribe, draft, length.expected, length.passes)
    check_padding(scribe, draft)
    return scribe.outcome()


# ── length ───────────────────────────────────────────────────────────────────────────────────────


def _rows(facts: Facts, draft: Draft) -> Rows | None:
    """What one epoch draws from; None if its size is unknown."""
    samples = draft.data.samples
    if samples is None:
        return None
    if facts.lengths is not None and draft.objective.kind in facts.counting.leaves_out:
        return short_rows(facts.lengths, samples, draft.data.sequence)
    if facts.lengths is not None and _leaves_out_unanswered(facts, draft):
        return answered_rows(facts.lengths, samples, draft.data.sequence)
    if not draft.data.packing or facts.counting.packing == "joined":
        return Rows(samples, is_exact=True)
    if facts.lengths is None:
        return None
    return packed_rows(facts.lengths, samples, draft.data.sequence, facts.counting.packing)


def _leaves_out_unanswered(facts: Facts, draft: Draft) -> bool:
    """Whether samples are left out that have no answer before the cut."""
    data, kind = draft.data, draft.objective.kind
    if kind not in facts.counting.leaves_out_unanswered or data.packing or data.images:
        return False
    is_prompt = data.format == "prompt-completion" and data.loss_on is None
    return kind != "sft" or data.loss_on == "answers" or is_prompt


def _epoch(draft: Draft, rows: Rows) -> Epoch:
    batch, parallel = draft.batch, draft.parallel
    return Epoch(
        rows.count,
        batch.micro,
        batch.accumulation,
        parallel.data,
        parallel.sequence,
        draft.generation.samples,
    )


def _length(scribe: Scribe, draft: Draft) -> _Length:
    facts = scribe.facts
    rows = _rows(facts, draft)
    if facts.spec.train.steps is not None or "schedule.steps" in facts.pins:
        return _in_steps(scribe, None if rows is None else _epoch(draft, rows))
    given = facts.spec.train.epochs
    why = "not given: one pass" if given is None else "as the spec has it"
    epochs = scribe.say("schedule.epochs", float(given or 1), why, spec("train.epochs"))
    if rows is None or epochs is None:
        return _unknown_length(scribe, draft, epochs)
    epoch = _epoch(draft, rows)
    steps = facts.counting.steps(epoch, epochs)
    is_known = rows.is_exact and facts.counting.is_exact
    _say_steps(scribe, draft, epoch, steps, is_known=is_known)
    return _Length(epochs, steps if is_known else None, None if is_known else steps, epochs)


def _say_steps(scribe: Scribe, draft: Draft, epoch: Epoch, steps: int, *, is_known: bool) -> None:
    rests = (spec("data.samples"), slot("batch.global"), slot("schedule.epochs"))
    why = _sum(scribe, draft, epoch)
    unknown = "only an estimate: the trainer's count depends on the data"
    known = "the exact number is known"
    scribe.say("schedule.steps", steps if is_known else None, why if is_known else unknown, *rests)
    estimate = None if is_known else steps
    scribe.say("schedule.estimated_steps", estimate, known if is_known else f"about {why}", *rests)


def _unknown_length(scribe: Scribe, draft: Draft, epochs: float | None) -> _Length:
    why = _unknown(draft)
    scribe.say("schedule.steps", None, why, spec("data"))
    scribe.say("schedule.estimated_steps", None, why, spec("data"))
    run = "a run" if epochs is None else f"{epochs:g} epoch{'' if epochs == 1 else 's'}"
    scribe.report(
        "length-unknown",
        "note",
        f"{run} of unknown length: {why}",
        "data",
        help=_missing(scribe.facts.counted, draft),
    )
    return _Length(epochs, None, None, epochs)


def _missing(counted: int | None, draft: Draft) -> str:
    """What to give, so that the number of steps is known."""
    if draft.data.samples is not None:
        return "give data.lengths, which `tunec data FILE -o lengths.json` measures"
    if counted:
        return f"write `samples: {counted}` under `data`, as the files of data.train hold"
    return "give data.samples"


def _in_steps(scribe: Scribe, epoch: Epoch | None) -> _Length:
    why = "the spec gives steps" if scribe.facts.spec.train.steps else "the number is pinned"
    scribe.say("schedule.epochs", None, why, spec("train.steps"))
    given = scribe.facts.spec.train.steps
    steps: int = scribe.say("schedule.steps", given, "the spec's own", spec("train.steps"))
    scribe.say("schedule.estimated_steps", None, "the exact number is known", spec("train.steps"))
    once = scribe.facts.counting.steps(epoch, 1) if epoch else 0
    return _Length(None, steps, None, steps / once if once else None)


def _sum(scribe: Scribe, draft: Draft, epoch: Epoch) -> str:
    trainer, batch = scribe.facts.counting.trainer, draft.batch.global_
    if epoch.answers:
        a_step = f"{batch} answers a step are {epoch.prompts_a_step} prompts"
        return f"{epoch.rows} prompts, and {a_step}: epochs as {trainer} counts them"
    rows = "samples"
    if draft.data.packing:
        rows = f"rows ({scribe.facts.counting.packing}, of {draft.data.samples} samples)"
    elif epoch.rows != draft.data.samples:
        rows = f"samples (of {draft.data.samples}, less those that are too long)"
    return f"{epoch.rows} {rows} / {batch} x epochs, as {trainer} counts them"


def _unknown(draft: Draft) -> str:
    if draft.data.samples is None:
        return "the number of samples is not given"
    return "the number of packed rows depends on the lengths of the samples"


# ── learning rate ────────────────────────────────────────────────────────────────────────────────


def _kind(facts: Facts, draft: Draft) -> tuple[ScheduleKind, str]:
    train = facts.spec.train
    if draft.model.kind == "diffusion" and "schedule" not in train.model_fields_set:
        return "constant_with_warmup", "not given: usual for diffusion models"
    why = "as the spec has it" if "schedule" in train.model_fields_set else "not given: usual"
    return train.schedule, why


def _warmup(scribe: Scribe, draft: Draft, kind: ScheduleKind, length: _Length) -> None:
    train = scribe.facts.spec.train
    share = scribe.facts.pinned("schedule.warmup_share", train.warmup.share)
    if kind == "constant":
        _rises_in(scribe, 0, "a constant rate has none")
    elif "schedule.warmup_steps" in scribe.facts.pins:
        _rises_in(scribe, train.warmup.steps, "the steps are pinned")
    elif train.warmup.steps is not None:
        _rises_in(scribe, train.warmup.steps, "the spec's own")
    elif draft.model.kind == "diffusion" and "warmup" not in train.model_fields_set:
        most = (length.expected or 10 * _WARMUP_OF_DIFFUSION) // 10
        count = min(_WARMUP_OF_DIFFUSION, most)
        _rises_in(scribe, count, "not given: usual for diffusion models, and a tenth at most")
    elif not share:
        _rises_in(scribe, 0, "the spec's own")
    elif length.steps == 1:
        _rises_in(scribe, 0, "a run of one step would consist of warm-up only")
    else:
        _rises_over(scribe, draft, share, length.steps)


def _rises_in(scribe: Scribe, steps: int | None, why: str) -> None:
    scribe.say("schedule.warmup_share", None, "the warm-up is given in steps", spec("train.warmup"))
    scribe.say("schedule.warmup_steps", steps, why, spec("train.warmup"))


def _rises_over(scribe: Scribe, draft: Draft, share: float, steps: int | None) -> None:
    why = as_given(scribe.facts.spec.train, "warmup")
    scribe.say("schedule.warmup_share", share, why, spec("train.warmup"))
    counting = scribe.facts.counting
    count = None if steps is None else counting.rise(steps, share, draft.objective.kind)
    how = "rounded up"
    if steps is not None and count != math.ceil(steps * share):
        how = f"rounded as {counting.trainer} does"
    why = "the number of steps is not known" if steps is None else f"{share:.0%} of all, {how}"
    rests = (slot("schedule.warmup_share"), slot("schedule.steps"))
    scribe.say("schedule.warmup_steps", count, why, *rests)


# ── saving and evaluation ────────────────────────────────────────────────────────────────────────


def _saving(scribe: Scribe, draft: Draft, length: _Length) -> int | None:
    train = scribe.facts.spec.train
    keep = scribe.facts.pinned("schedule.keep_checkpoints", train.keep_checkpoints)
    every, why = _save_every(scribe, draft, length, keeps_all=keep is None)
    rests = (spec("train.checkpoints"), slot("batch.global"))
    save: int | None = scribe.say("schedule.save_steps", every, why, *rests)
    why = as_given(train, "keep_checkpoints")
    size = _checkpoint(draft)
    if size >= _LARGE:
        why += f"; one is about {format_bytes(size)}"
    scribe.say("schedule.keep_checkpoints", keep, why, spec("train.keep_checkpoints"))
    return save


def _save_every(
    scribe: Scribe, draft: Draft, length: _Length, *, keeps_all: bool
) -> tuple[int | None, str]:
    times, steps = scribe.facts.spec.train.checkpoints, length.expected
    if times and steps:
        return steps_between(steps, times), "as the spec asks"
    if times and times == length.epochs:
        return None, "as the spec asks: once an epoch"
    if times:
        _not_placed(scribe, "checkpoints", "it saves about once an hour")
    seconds = step_seconds(scribe.facts, draft)
    every = saving_steps(seconds, steps, keeps_all=keeps_all)
    if seconds is None:
        return every, "the trainer's default of 500: the duration of a step is unknown"
    work = _duration(every * seconds)
    if every == steps:
        return every, f"at the end of the run, which takes {work}"
    return every, f"{work} of work between two saves, by {seconds:.3g} s a step"


def _not_placed(scribe: Scribe, field: str, instead: str) -> None:
    """Report that times per run cannot become steps, since the run's length is unknown."""
    times = getattr(scribe.facts.spec.train, field)
    scribe.report(
        "times-not-placed",
        "warning",
        f"{times} {field} of a run of unknown length cannot be converted to steps: {instead}",
        f"train.{field}",
        help="give data.samples, or data.lengths where samples are packed",
    )


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"about {minutes:.0f} min" if minutes >= 1 else f"about {seconds:.0f} s"


def _checkpoint(draft: Draft) -> int:
    found = checkpoint_bytes(
        draft.adapter.trainable_parameters,
        draft.model.parameters,
        draft.optimizer,
        draft.states,
        adapted=draft.adapter.kind != "none",
    )
    return round(found)


def _evaluation(scribe: Scribe, draft: Draft, length: _Length, save: int | None) -> None:
    if draft.data.evaluation is None:
        scribe.say("schedule.evaluation_steps", None, "there is no evaluation data")
        return
    times, steps = scribe.facts.spec.train.evaluations, length.expected
    rests = (spec("train.evaluations"), slot("schedule.steps"))
    if times == 0:
        scribe.say("schedule.evaluation_steps", None, "as the spec asks", *rests)
    elif steps is None:
        if times:
            _not_placed(scribe, "evaluations", "it evaluates as often as it saves")
        why = "the number of steps is unknown: as often as it saves"
        scribe.say("schedule.evaluation_steps", save or 500, why, *rests)
    else:
        every = steps_between(steps, times) if times else evaluation_steps(length.passes, steps)
        why = "as the spec asks" if times else "once an epoch, and 4 to 10 times over the run"
        scribe.say("schedule.evaluation_steps", every, why, *rests)
