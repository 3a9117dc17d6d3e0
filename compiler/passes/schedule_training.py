"""schedule_training: steps, warm-up, saving and evaluation, from data size and effective batch."""

import math

from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Scribe, as_given, slot, spec
from tunec.schemas.terms import ScheduleKind

_LOG_LINES = 100
"""Log lines over a run: enough for a curve, few enough to read."""

_FEW = 10
"""Steps below which a run hardly moves: a judgement, told as a note."""


def schedule_training(facts: Facts, draft: Draft) -> Outcome:
    """Derive the run's length in steps and what happens along it."""
    scribe = Scribe(facts)
    train = facts.spec.train
    per_epoch = _steps_per_epoch(draft)
    epochs, steps = _length(scribe, per_epoch)
    kind, why = _kind(facts, draft)
    kind = scribe.say("schedule.kind", kind, why, spec("train.schedule"))
    _warmup(scribe, kind, steps)
    log = max(1, steps // _LOG_LINES) if steps else 10
    scribe.say("schedule.log_steps", log, f"about {_LOG_LINES} lines over the run")
    save = _interval(steps, train.checkpoints, per_epoch)
    why = "as often as asked" if train.checkpoints else "once an epoch"
    scribe.say("schedule.save_steps", save, why, spec("train.checkpoints"), slot("batch.global"))
    keep = train.keep_checkpoints
    why = as_given(train, "keep_checkpoints")
    scribe.say("schedule.keep_checkpoints", keep, why, spec("train.keep_checkpoints"))
    _evaluation(scribe, draft, steps, per_epoch)
    _unknown_length(scribe, steps, epochs)
    _few_steps(scribe, draft, steps)
    return scribe.outcome()


def _kind(facts: Facts, draft: Draft) -> tuple[ScheduleKind, str]:
    train = facts.spec.train
    if draft.model.kind == "diffusion" and "schedule" not in train.model_fields_set:
        return "constant_with_warmup", "not given: usual for diffusion models"
    why = "as the spec has it" if "schedule" in train.model_fields_set else "not given: usual"
    return train.schedule, why


def _steps_per_epoch(draft: Draft) -> int | None:
    samples = draft.data.samples
    # the HF Trainer and SimpleTuner count the last, partial step of an epoch as one
    return None if samples is None else math.ceil(samples / draft.batch.global_)


def _length(scribe: Scribe, per_epoch: int | None) -> tuple[float | None, int | None]:
    train = scribe.facts.spec.train
    if train.steps is not None:
        scribe.say("schedule.epochs", None, "the spec gives steps", spec("train.steps"))
        return None, scribe.say(
            "schedule.steps", train.steps, "the spec's own", spec("train.steps")
        )
    epochs = train.epochs if train.epochs is not None else 1.0
    why = "as the spec has it" if train.epochs is not None else "not given: one pass"
    epochs = scribe.say("schedule.epochs", float(epochs), why, spec("train.epochs"))
    steps = None if per_epoch is None or epochs is None else math.ceil(epochs * per_epoch)
    known = "samples / global batch x epochs" if steps else "the number of samples is not given"
    rests = (spec("data.samples"), slot("batch.global"), slot("schedule.epochs"))
    return epochs, scribe.say("schedule.steps", steps, known, *rests)


def _warmup(scribe: Scribe, kind: ScheduleKind, steps: int | None) -> None:
    warmup = scribe.facts.spec.train.warmup
    if kind == "constant":
        scribe.say("schedule.warmup_steps", 0, "a constant rate has none", spec("train.schedule"))
        return
    if warmup.steps is not None:
        scribe.say("schedule.warmup_steps", warmup.steps, "the spec's own", spec("train.warmup"))
        return
    share = warmup.share or 0.0
    count = min(math.ceil(share * steps), steps - 1) if steps else 0
    why = f"{share:.0%} of all steps, rounded up" if steps else "the number of steps is not known"
    why = "a run of one step would be all warm-up" if steps == 1 else why
    scribe.say("schedule.warmup_steps", count, why, spec("train.warmup"), slot("schedule.steps"))


def _interval(steps: int | None, times: int | None, per_epoch: int | None) -> int | None:
    """Steps between events: so many over the run, or once an epoch; None: not known."""
    if times and steps:
        return max(1, steps // times)
    return min(per_epoch, steps) if per_epoch and steps else None


def _evaluation(scribe: Scribe, draft: Draft, steps: int | None, per_epoch: int | None) -> None:
    if draft.data.evaluation is None:
        scribe.say("schedule.evaluation_steps", None, "there is no evaluation data")
        return
    times = scribe.facts.spec.train.evaluations
    every = _interval(steps, times, per_epoch) or 500
    why = "as often as asked" if times else "once an epoch" if steps else "the trainer's usual 500"
    scribe.say("schedule.evaluation_steps", every, why, spec("train.evaluations"))


def _epochs(number: float | None) -> str:
    return "a run" if number is None else f"{number:g} epochs"


def _unknown_length(scribe: Scribe, steps: int | None, epochs: float | None) -> None:
    train = scribe.facts.spec.train
    if steps is None and train.schedule != "constant" and train.warmup.share:
        scribe.report(
            "length-unknown",
            "note",
            f"{_epochs(epochs)} of unknown length: warm-up and saving cannot be derived",
            "data",
            help="give data.samples, or train.steps",
        )


def _few_steps(scribe: Scribe, draft: Draft, steps: int | None) -> None:
    """Say where the data gives a batch only a few times; steps that are asked for are meant."""
    asked = scribe.facts.spec.train.steps is not None or "schedule.steps" in scribe.facts.pins
    if steps is None or steps >= _FEW or asked:
        return
    samples, batch = draft.data.samples or 0, draft.batch.global_
    scribe.report(
        "few-steps",
        "note",
        f"the run makes {steps} optimizer step{'' if steps == 1 else 's'} of {batch} samples",
        "data.samples",
        notes=(f"all {samples} samples fill a part of one step",) if samples < batch else (),
        help="lower batch.global, or raise train.epochs",
    )
