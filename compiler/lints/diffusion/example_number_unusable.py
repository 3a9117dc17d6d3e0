"""A number or word that an example script of diffusers parses, and cannot train with."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.diffusion.examples import commands, scripts
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DIVISORS: Final = ("checkpointing_steps", "validation_epochs", "validation_steps")
_OF_VALIDATION: Final = ("validation_prompt", "validation_prompts", "validation_image")
_SCHEDULES: Final = (
    *("linear", "cosine", "cosine_with_restarts", "polynomial", "constant"),
    *("constant_with_warmup", "piecewise_constant"),
)
"""diffusers 0.27.2 to 0.42.1 optimization.py `SchedulerType`."""
_OTHERS: Final = ("prodigy", "adafactor")
_MOST: Final = 0.01
"""The highest rate of the examples' own READMEs, but Prodigy's, is 1e-3 for 1 to 8 samples."""


def _check(run: Run) -> Iterator[Finding]:
    for document, script in commands(run):
        if script not in scripts():
            continue
        yield from _divisors(document)
        yield from _weight(document)
        yield from _schedule(document)
        yield from _rate(run, document)


def _divisors(document: Document) -> Iterator[Finding]:
    validates = any(document.get(each) for each in _OF_VALIDATION)
    for flag in _DIVISORS:
        at = document.get(flag)
        if at is None or at.value != 0 or (flag.startswith("validation") and not validates):
            continue
        yield Finding(
            f"{flag} is 0: the run fails where it would first be asked",
            (at.label("ZeroDivisionError"),),
            ("the count of epochs or steps is divided by it",),
            "write 1 or more, or leave out what is validated",
        )


def _weight(document: Document) -> Iterator[Finding]:
    at = document.get("snr_gamma")
    if at is not None and is_number(at.value) and at.value <= 0:
        yield Finding(
            f"snr_gamma {at.value} weighs every loss with {at.value}",
            (at.label("nothing is learnt"),),
            ("the weight is the smaller one of snr_gamma and the signal-to-noise ratio",),
            "write 5.0, or leave it out",
            consequence="silent",
        )


def _schedule(document: Document) -> Iterator[Finding]:
    at = document.get("lr_scheduler")
    if at is None or not isinstance(at.value, str) or at.value in _SCHEDULES:
        return
    near = nearest(at.value, _SCHEDULES)[:1]
    yield Finding(
        f"lr_scheduler cannot be {at.value}",
        (at.label("is not a valid SchedulerType"),),
        (f"taken: {quoted(sorted(_SCHEDULES))}",),
        f"did you mean {quoted(near)}?" if near else "write constant",
        consequence="init",
    )


def _rate(run: Run, document: Document) -> Iterator[Finding]:
    """The rate that scale_lr makes of the one that is written."""
    switch, at = document.get("scale_lr"), document.get("learning_rate")
    world = run.value("parallel.world")
    if switch is None or at is None or not is_number(at.value):
        return
    if str(document.value("optimizer", "adamw")).lower() in _OTHERS:
        return
    micro = document.value("train_batch_size", 1)
    steps = document.value("gradient_accumulation_steps", 1)
    counts = {"samples": micro, "accumulation": steps, "processes": world or 1}
    if not all(isinstance(each, int) and each > 0 for each in counts.values()):
        return
    rate = at.value * micro * steps * (world or 1)
    if rate >= _MOST and rate > at.value:
        yield Finding(
            f"scale_lr makes a learning rate of {rate:g} of {at.value:g}",
            (at.label("multiplied"), switch.label("", primary=False)),
            ("Adam moves every weight by about the rate in each step",),
            "leave out scale_lr, or write the rate of one sample",
            sum=tuple(Term(name, each, "") for name, each in counts.items()),
            severity="warning",
        )


RULE = Rule(
    name="example-number-unusable",
    severity="error",
    consequence="step",
    consumers=("diffusers",),
    sources=(
        (
            "huggingface/diffusers 0.27.2 to 0.40.0 and 58eb52c, examples/text_to_image/"
            "train_text_to_image_lora.py `main` and its like: epoch % args.validation_epochs; "
            "global_step % args.checkpointing_steps; snr_gamma * ones_like(timesteps) .min; "
            "args.learning_rate * gradient_accumulation_steps * train_batch_size * num_processes"
        ),
        "diffusers 0.42.1 optimization.py `get_scheduler`: SchedulerType(name)",
        "unslothai/unsloth#6791",
    ),
    check=_check,
)
