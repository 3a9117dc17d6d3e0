"""The length of training, and schedules that depend on it."""

from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.training_loop import (
    arguments_of,
    is_number,
    is_overridden,
    is_positive,
    total_steps,
)
from tunec.compiler.lints.rule import Finding, keys, rule


@rule("note", "silent", consumers=("transformers",), reads=("trainer:max_steps",))
def epochs_beside_steps(run: LintContext) -> Iterator[Finding]:
    """Both a number of epochs and a number of steps are set."""
    for document in run.of("trainer"):
        steps, passes = document.get("max_steps"), document.get("num_train_epochs")
        if steps is None or passes is None or document.is_compiled:
            continue
        if is_positive(steps.value) and is_positive(passes.value):
            yield Finding(
                f"{passes.path} {passes.value} does nothing beside {steps.path} {steps.value}",
                (passes.label("not used"), steps.label("decides", primary=False)),
                ("steps win, whether they are more than the epochs or less",),
                f"remove {passes.path}",
                Fix((passes.removed(),), "safe"),
            )


_STEPS: Final = {
    "logging_steps": ("logging_strategy",),
    "save_steps": ("save_strategy",),
    "eval_steps": ("eval_strategy", "evaluation_strategy"),
}


@rule(
    "error",
    "parse",
    consumers=("transformers",),
    reads=keys("trainer", *_STEPS, "warmup_steps", "warmup_ratio"),
)
def interval_refused(run: LintContext) -> Iterator[Finding]:
    """An interval or a warm-up has an invalid number."""
    for document in run.of("trainer"):
        for key, strategies in _STEPS.items():
            place = document.get(key)
            if place is not None and _is_by_steps(document, key, strategies):
                yield from _interval(key, place)
        yield from _warmup(run, document)


def _is_by_steps(document: Document, key: str, strategies: tuple[str, ...]) -> bool:
    """Whether the interval is read; logging and saving go by steps by default."""
    said = next((each for name in strategies if (each := document.get(name))), None)
    if said is None:
        return key != "eval_steps" and not document.unknown & set(strategies)
    return bool(said.value == "steps")


def _interval(key: str, place: Place) -> Iterator[Finding]:
    value = place.value
    if not is_number(value) or not isfinite(value):
        return
    if value > 1 and value != int(value):
        yield _finding(place, "an interval above 1 is a whole number of steps", int(value))
    elif key == "logging_steps" and value == 0:
        yield _finding(place, "logging by steps needs an interval", 10)


def _warmup(run: LintContext, document: Document) -> Iterator[Finding]:
    steps, share = document.get("warmup_steps"), document.get("warmup_ratio")
    if steps is not None and is_number(steps.value) and steps.value < 0:
        yield _finding(steps, "warm-up cannot be negative", 0)
    if share is None or not is_number(share.value) or document.is_view:
        return
    if not 0 <= share.value <= 1 and run.runs("transformers>=5") is not True:
        yield _finding(share, "a share lies between 0 and 1", min(share.value / 100, 1))


def _finding(place: Place, why: str, near: Any) -> Finding:
    return Finding(
        f"`{place.path}` cannot be {place.value}",
        (place.label("refused"),),
        (why,),
        f"write {near}",
    )


def _check(run: LintContext) -> Iterator[Finding]:
    for place in run.each("trainer", "max_steps"):
        if place.value == 0 and not isinstance(place.value, bool) and not place.document.is_view:
            yield Finding(
                "max_steps is 0: training ends after the first step",
                (place.label("not the same as -1"),),
                ("before 4.51 it meant no limit, and num_train_epochs decided",),
                "write max_steps: -1, or remove it",
                Fix((place.replaced(-1),), "unsafe"),
            )


@rule("error", "silent", consumers=("transformers>=4.51",), reads=("trainer:max_steps",))
def max_steps_of_zero(run: LintContext) -> Iterator[Finding]:
    """max_steps is 0, with which newer releases stop after the first step."""
    train = run.said("trainer", "do_train")
    if run.of("axolotl") or (train is not None and train.value is False):
        return
    yield from _check(run)


@rule(
    "error",
    "silent",
    consumers=("transformers", "llamafactory"),
    reads=(
        *keys("trainer", "num_train_epochs", "learning_rate"),
        "llamafactory:freeze_trainable_layers",
    ),
)
def nothing_is_trained(run: LintContext) -> Iterator[Finding]:
    """The run has no epochs, no trainable layers, or a learning rate of zero."""
    train = run.said("trainer", "do_train")
    if train is not None and train.value is False:
        return
    for place in run.each("trainer", "num_train_epochs"):
        if place.document.get("max_train_steps") or total_steps(run) is not None:
            continue  # steps by the words of a script of diffusers
        if is_number(place.value) and place.value <= 0:
            yield Finding(
                f"{place.path} is {place.value}: training ends before the first step",
                (place.label("no step"),),
                ("the model is saved as it was loaded, and no error is reported",),
                "write 1 or more, or max_steps",
                severity="note" if place.value == 0 else None,  # as it is written
            )
    for document in run.of("llamafactory"):
        layers = document.get("freeze_trainable_layers")
        if document.value("finetuning_type") != "freeze" or document.get("freeze_extra_modules"):
            continue
        if layers is not None and layers.value == 0 and layers.value is not False:
            yield Finding(
                "freeze_trainable_layers is 0: no layer is trained",
                (layers.label("no layer"),),
                ("above 0 it counts from the last layer, below 0 from the first",),
                "write the number of layers, as 2",
                consequence="init",
            )
    for place in run.each("trainer", "learning_rate"):
        if is_number(place.value) and place.value == 0:
            yield Finding(
                "learning_rate is 0: every step leaves the model as it is",
                (place.label("no change"),),
                (),
                "write the rate",
                severity="note" if place.document.format == "python" else None,  # as to evaluate
            )


@rule("error", "init", consumers=("transformers>=4.30,<4.33",), reads=("deepspeed:optimizer",))
def optimizer_without_scheduler(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's file has an optimizer but no scheduler; the Trainer needs both or neither."""
    if not run.of("trainer") or run.runs("transformers>=4.30,<4.33") is not True:
        return
    for document in run.of("deepspeed"):
        section = document.get("optimizer")
        if section is None or document.get("scheduler") is not None:
            continue
        yield Finding(
            "the DeepSpeed file has an optimizer and no scheduler",
            (section.key_label("refused alone"),),
            ("these releases need both from DeepSpeed, or neither; from 4.33 on they mix",),
            "add a scheduler, such as WarmupDecayLR with auto, or remove the optimizer",
        )


_FOLLOWS: Final = ("reduce_lr_on_plateau", "greedy")


@rule("error", "parse", consumers=("transformers",), reads=("trainer:lr_scheduler_type",))
def plateau_without_evaluation(run: LintContext) -> Iterator[Finding]:
    """The learning rate depends on a metric that is not measured."""
    for document in run.of("trainer"):
        kind = document.get("lr_scheduler_type")
        if kind is None or kind.value not in _FOLLOWS or document.is_view:
            continue
        strategy = document.get("eval_strategy") or document.get("evaluation_strategy")
        if {"eval_strategy", "evaluation_strategy"} & document.unknown:
            continue
        if strategy is None or strategy.value in ("no", False):
            yield Finding(
                f"{kind.value} needs evaluations, and the run has none",
                (kind.label("needs a metric"), *also(strategy)),
                ("eval_strategy is no by default",),
                "write eval_strategy: epoch",
            )


@rule("warning", "silent", consumers=("transformers",), reads=("trainer:lr_scheduler_type",))
def restarts_of_one_cycle(run: LintContext) -> Iterator[Finding]:
    """A cosine schedule with restarts that never restarts."""
    for document in run.of("trainer"):
        kind = document.get("lr_scheduler_type")
        if kind is None or kind.value != "cosine_with_restarts" or document.is_view:
            continue
        given = document.get("lr_scheduler_kwargs")
        arguments = arguments_of(given)
        if arguments is None or "lr_scheduler_kwargs" in document.unknown or is_overridden(run):
            continue
        if arguments.get("num_cycles", 1) == 1:
            yield Finding(
                "cosine_with_restarts with one cycle is a plain cosine",
                (kind.label("never restarts"), *also(given)),
                ("num_cycles is 1 unless lr_scheduler_kwargs says more",),
                "write lr_scheduler_kwargs: {num_cycles: 3}, or lr_scheduler_type: cosine",
            )


@rule(
    "warning",
    "silent",
    consumers=("deepspeed", "transformers"),
    reads=("deepspeed:scheduler.type",),
)
def scheduler_without_decay(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's WarmupLR replaces the trainer's default schedule, which would lower the rate."""
    kind = run.said("deepspeed", "scheduler.type")
    asked = run.effective("trainer", "lr_scheduler_type")
    if kind is None or kind.value != "WarmupLR" or asked.source != "default":
        return
    steps = total_steps(run)
    if steps is not None and steps.value == 1:
        return  # whose rate is the first of either schedule
    yield Finding(
        f"WarmupLR never lets the rate fall; the trainer's own schedule is {asked.value}",
        (kind.label("used"),),
        (
            "after warm-up the rate stays at warmup_max_lr to the end",
            f"lr_scheduler_type is left out: {asked.by} is {asked.value}",
        ),
        "remove the scheduler, or write WarmupDecayLR with total_num_steps",
    )
