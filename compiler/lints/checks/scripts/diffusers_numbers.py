"""Numbers that diffusers' example scripts cannot work with."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.diffusers_examples import commands, scripts
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, rule

_DIVISORS: Final = ("checkpointing_steps", "validation_epochs", "validation_steps")
_OF_VALIDATION: Final = ("validation_prompt", "validation_prompts", "validation_image")
_SCHEDULES: Final = (
    *("linear", "cosine", "cosine_with_restarts", "polynomial", "constant"),
    *("constant_with_warmup", "piecewise_constant"),
)
"""diffusers 0.27.2 to 0.42.1 optimization.py `SchedulerType`."""
_TRACKERS: Final = frozenset(
    {
        *("all", "aim", "tensorboard", "wandb", "trackio", "comet_ml", "mlflow", "clearml"),
        *("dvclive", "swanlab"),
    }
)
"""accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `LoggerType`, all of them together."""
_HIGHEST: Final = 0.1
_COUNTS: Final = ("rank", "num_vectors", "train_batch_size", "gradient_accumulation_steps")
_PACKED: Final = re.compile(r"_(flux|flux2|sd3|qwen_image)(_|$)")
_BLOCK: Final = 16
"""Pixels of a side of what becomes one token: the VAE's 8, twice."""
_PROPERTIES: Final = ("object", "style")
_OTHERS: Final = ("prodigy", "adafactor")
_MOST: Final = 0.01
"""The highest rate of the examples' own READMEs, but Prodigy's, is 1e-3 for 1 to 8 samples."""


@rule(
    "example-number-unusable",
    "error",
    "step",
    consumers=("diffusers",),
    reads=("diffusers:*",),
    hardware=True,
)
def example_number_unusable(run: LintContext) -> Iterator[Finding]:
    """A number or word that an example script of diffusers parses, and cannot train with."""
    for document, script in commands(run):
        if script not in scripts():
            continue
        yield from _divisors(document)
        yield from _weight(document)
        yield from _schedule(document)
        yield from _rate(run, document)
        yield from _words(document)
        yield from _counts(document)
        yield from _weights(document)
        yield from _sides(document, script)
        yield from _of_npus(run, document)


def _words(document: Document) -> Iterator[Finding]:
    """Texts that are looked up, or tokenised, when the script has begun."""
    report, first = document.get("report_to"), document.get("initializer_token")
    if report is not None and isinstance(report.value, str) and report.value not in _TRACKERS:
        yield Finding(
            f"report_to cannot be {report.value}",
            (report.label("unsupported logging capability"),),
            (f"accelerate knows {quoted(sorted(_TRACKERS))}",),
            "write tensorboard",
            consequence="init",
        )
    if first is not None and isinstance(first.value, str) and len(first.value.split()) > 1:
        yield Finding(
            f"initializer_token {first.value!r} is more than one token",
            (first.label("refused"),),
            ("the initializer token must be a single token",),
            f"write {first.value.split()[-1]}",
            consequence="init",
        )
    kind = document.get("learnable_property")
    if kind is not None and isinstance(kind.value, str) and kind.value not in _PROPERTIES:
        yield Finding(
            f"learnable_property {kind.value} is taken for object",
            (kind.label("not style"),),
            ("prompts of style are used for that word, and those of objects for any other",),
            "write object or style",
            severity="warning",
            consequence="silent",
        )


def _weights(document: Document) -> Iterator[Finding]:
    """Numbers that leave nothing of what they weigh, or of the weights."""
    share, rate = document.get("prior_loss_weight"), document.get("learning_rate")
    if share is not None and share.value == 0 and document.get("with_prior_preservation"):
        yield Finding(
            "prior_loss_weight 0 leaves nothing of the prior",
            (share.label("not counted"),),
            ("images of the class are made and trained on, and their loss is multiplied by it",),
            "write 1.0, or leave out with_prior_preservation",
            severity="warning",
            consequence="silent",
        )
    is_free = str(document.value("optimizer", "adamw")).lower() in _OTHERS
    if rate is not None and is_number(rate.value) and rate.value >= _HIGHEST and not is_free:
        yield Finding(
            f"a learning rate of {rate.value} for Adam",
            (rate.label("no rate of Adam"),),
            ("Adam moves every weight by about the rate in each step",),
            "write 1e-4, or --optimizer prodigy, whose rate is 1",
            severity="warning",
        )


def _counts(document: Document) -> Iterator[Finding]:
    workers = document.get("dataloader_num_workers")
    if workers is not None and is_number(workers.value) and workers.value < 0:
        yield Finding(
            f"dataloader_num_workers cannot be {workers.value}",
            (workers.label("refused"),),
            ("num_workers option should be non-negative; use num_workers=0",),
            "write 0",
            consequence="init",
        )
    for flag in _COUNTS:
        at = document.get(flag)
        if at is not None and is_number(at.value) and at.value < 1:
            yield Finding(
                f"{flag} cannot be {at.value}",
                (at.label("refused"),),
                ("it is at least 1",),
                "write 4" if flag == "rank" else "write 1",
                consequence="init",
            )


def _sides(document: Document, script: str) -> Iterator[Finding]:
    """Latents are packed two by two: an odd side of them is not cut in halves."""
    at = document.get("resolution")
    if at is None or not _PACKED.search(script) or document.get("aspect_ratio_buckets"):
        return
    if isinstance(at.value, int) and at.value > 0 and at.value % _BLOCK:
        yield Finding(
            f"resolution {at.value} cannot be divided by {_BLOCK}",
            (at.label("an odd number of latents"),),
            ("the first forward pass ends in a shape that does not fit",),
            f"write {max(_BLOCK, at.value // _BLOCK * _BLOCK)}",
        )


def _of_npus(run: LintContext, document: Document) -> Iterator[Finding]:
    at, device = document.get("enable_npu_flash_attention"), run.environment.weakest
    if at is not None and at.value is True and device and device.compute_capability is not None:
        yield Finding(
            f"enable_npu_flash_attention on {device.title}",
            (at.label("refused"),),
            ("npu flash attention is supported only on npu devices",),
            "remove it",
            consequence="init",
        )


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


def _rate(run: LintContext, document: Document) -> Iterator[Finding]:
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
