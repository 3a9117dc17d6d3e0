"""Rules about DeepSpeed's scheduler."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted, shown
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.training_loop import (
    is_number,
    total_steps,
    warmup_place,
    warmup_steps,
)
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace

_LEAST: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "OneCycle": (("cycle_first_step_size", 1), ("cycle_second_step_size", 0)),
    "LRRangeTest": (("lr_range_test_step_size", 1),),
}

_NEEDED: Final = ("cycle_first_step_size",)


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:scheduler.type",))
def deepspeed_schedule_number_refused(run: LintContext) -> Iterator[Finding]:
    """A DeepSpeed scheduler refuses one of its numbers."""
    for document in run.of("deepspeed"):
        kind = document.get("scheduler.type")
        for key, least in _LEAST.get(kind.value, ()) if kind and _is_text(kind.value) else ():
            place = document.get(f"scheduler.params.{key}")
            if place is None or kind is None or not _is_below(place.value, key, least):
                continue
            is_late = place.value is not None and run.runs("deepspeed<0.19")
            yield Finding(
                f"{kind.value}: `{key}` cannot be {shown(place.value)}",
                (place.label("refused"), kind.label("", primary=False)),
                ("the position within the cycle is divided by it",),
                f"write a number of {least} or more",
                consequence="step" if is_late else None,
            )


def _is_below(value: object, key: str, least: int) -> bool:
    """Whether a value is too low, or null for a parameter that must be a number."""
    if value is None:
        return key in _NEEDED
    return is_number(value) and value < least


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "WarmupDecayLR": ("total_num_steps",),
    "WarmupCosineLR": ("total_num_steps",),
    "OneCycle": ("cycle_min_lr", "cycle_max_lr"),
    "StepLR": ("step_size",),
    "MultiStepLR": ("milestones",),
    "ExponentialLR": ("gamma",),
    "CosineAnnealingLR": ("T_max",),
    "CosineAnnealingWarmRestarts": ("T_0",),
    "CyclicLR": ("base_lr", "max_lr"),
    "OneCycleLR": ("max_lr",),
}
"""Parameters of `__init__` without a default: deepspeed 0.19.8 runtime/lr_schedules.py, torch
2.13.0 optim/lr_scheduler.py."""


_PARAMETERLESS: Final = frozenset({"WarmupLR", "LRRangeTest"})
"""Schedulers that require no parameter, but require the `params` mapping."""


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:scheduler.type",))
def deepspeed_scheduler_incomplete(run: LintContext) -> Iterator[Finding]:
    """A required parameter of DeepSpeed's scheduler is missing."""
    for document in run.of("deepspeed"):
        kind = document.get("scheduler.type")
        if kind is None or not isinstance(kind.value, str):
            continue
        given = document.value("scheduler.params")
        if given is None and kind.value in _PARAMETERLESS:
            yield _without_params(kind)
        names = given if isinstance(given, dict) else {}
        absent = [key for key in _NEEDS.get(kind.value, ()) if key not in names]
        if absent and document.format != "python":  # which shows no values that it works out
            yield Finding(
                f"{kind.value} needs {quoted(absent, 'and')}",
                (kind.label("needs it"),),
                (
                    "TypeError when the engine is built: missing a required argument",
                    'the trainer fills in what is "auto", and adds nothing',
                ),
                'write "total_num_steps": "auto", or the number'
                if "total_num_steps" in absent
                else f"write {quoted(absent, 'and')} below scheduler.params",
            )


def _without_params(kind: Place) -> Finding:
    return Finding(
        f"{kind.value} needs params",
        (kind.label("needs them"),),
        ("TypeError when the engine is built: what is unpacked has to be a mapping",),
        'write "params": {}, or the parameters',
    )


_OWN: Final = ("LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
_COSINE: Final = "WarmupCosineLR"
_TORCH: Final = (
    *("LambdaLR", "MultiplicativeLR", "StepLR", "MultiStepLR", "ConstantLR", "LinearLR"),
    *("ExponentialLR", "SequentialLR", "CosineAnnealingLR", "ChainedScheduler", "PolynomialLR"),
    *("ReduceLROnPlateau", "CyclicLR", "CosineAnnealingWarmRestarts", "OneCycleLR"),
)
_MEANT: Final = {
    "linear": "WarmupDecayLR",
    "cosine": "WarmupCosineLR",
    "constant_with_warmup": "WarmupLR",
    "WarmupLinearLR": "WarmupDecayLR",
    "CosineLR": "WarmupCosineLR",
}


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:scheduler.type",))
def deepspeed_scheduler_unknown(run: LintContext) -> Iterator[Finding]:
    """Neither DeepSpeed nor torch has a scheduler of the given name."""
    for kind in run.each("deepspeed", "scheduler.type"):
        name = kind.value
        if name == _COSINE and run.runs("deepspeed<0.12.4") is True:
            yield Finding(
                f"{run.release('deepspeed')} has no scheduler {name}",
                (kind.label("not recognised"),),
                ("it came with 0.12.4",),
                "use deepspeed 0.12.4 or newer, or WarmupDecayLR",
            )
        if not isinstance(name, str) or name == "auto" or name in (*_OWN, *_TORCH):
            continue
        near = [_MEANT[name]] if name in _MEANT else nearest(name, (*_OWN, *_TORCH))
        yield Finding(
            f"neither DeepSpeed nor torch has a scheduler {name}",
            (kind.label("not recognised"),),
            (f"DeepSpeed's own: {quoted(_OWN, 'and')}; the case of letters counts",),
            did_you_mean(near) or "remove the scheduler: the trainer then builds its own",
            Fix((kind.replaced(near[0]),), "unsafe") if len(near) == 1 else None,
        )


@rule(
    "error",
    "init",
    consumers=("transformers",),
    reads=tuple(
        f"deepspeed:scheduler.params.{each}" for each in ("total_num_steps", "warmup_num_steps")
    ),
)
def schedule_and_trainer_differ(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's scheduler has other numbers of steps than the trainer."""
    if not run.of("trainer"):
        return
    total = total_steps(run)
    ours = run.said("deepspeed", "scheduler.params.total_num_steps")
    if ours is not None and is_number(ours.value) and total and ours.value != total.value:
        yield _trainer_finding(ours, "max_steps", total.value, total.place)
    warm = run.said("deepspeed", "scheduler.params.warmup_num_steps")
    if warm is None or not is_number(warm.value):
        return
    theirs = warmup_steps(run, total.value if total else None)
    if theirs is not None and warm.value != theirs.value:
        yield _trainer_finding(warm, theirs.place.path, theirs.value, theirs.place)
    elif warmup_place(run) is None and _none_given(run) and warm.value not in (0, 1):
        yield _trainer_finding(warm, "warmup_steps", 0, run.said("trainer", "warmup_steps"))


def _none_given(run: LintContext) -> bool:
    """Whether no trainer's file mentions a warm-up whose value is unknown."""
    keys = ("warmup_steps", "warmup_ratio")
    documents = run.of("trainer")
    return not any(key in each.unknown for each in documents for key in keys)


def _trainer_finding(ours: Place, key: str, value: int, theirs: Place | None) -> Finding:
    name = ours.path.rpartition(".")[2]
    return Finding(
        f"{name} is {ours.value}, and the trainer's {key} resolves to {value}",
        (ours.label("by DeepSpeed's file"), *also(theirs, "by the trainer")),
        ("the trainer compares them when it knows all steps, and refuses to train",),
        f'write "{name}": "auto"',
    )


_DEFAULT: Final = 0.001
_PARAMS: Final = "scheduler.params."
_KINDS: Final = ("WarmupLR", "WarmupDecayLR")
_LATER: Final = "from deepspeed 0.17.6 on WarmupLR warms up to the optimizer's lr: write it in both"


@rule("warning", "silent", consumers=("deepspeed",), reads=("deepspeed:scheduler.type",))
def scheduler_rate_beats_optimizer(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's scheduler leads to another learning rate than the optimizer's."""
    for document in run.of("deepspeed"):
        kind, rate = document.get("scheduler.type"), document.get("optimizer.params.lr")
        if kind is None or kind.value not in _KINDS:
            continue
        yield from _upside_down(document)
        yield from _word(document)
        if rate is None or not is_number(rate.value):
            continue
        top = document.get(f"{_PARAMS}warmup_max_lr")
        is_own = run.runs("deepspeed>=0.17") if kind.value == "WarmupLR" else False
        reached: Any = _DEFAULT if top is None else top.value
        if (top is None and is_own) or not is_number(reached) or reached == rate.value:
            continue
        found = _rate_finding(rate, top or kind, reached, is_written=top is not None)
        is_open = top is None and is_own is None
        yield replace(found, notes=(*found.notes, _LATER)) if is_open else found


def _rate_finding(rate: Place, top: Place, reached: float, *, is_written: bool) -> Finding:
    return Finding(
        f"the scheduler warms up to {reached:g}, and the optimizer's lr {rate.value:g} is not used",
        (rate.label("not used"), top.label("" if is_written else "sets the rate", primary=False)),
        (
            (
                "WarmupLR and WarmupDecayLR set the rate themselves, from warmup_min_lr to "
                "warmup_max_lr"
            ),
            *(() if is_written else (f"warmup_max_lr is {_DEFAULT} where it is left out",)),
        ),
        f"write warmup_max_lr: {rate.value:g}",
    )


def _upside_down(document: Document) -> Iterator[Finding]:
    low, high = (document.get(f"{_PARAMS}warmup_{end}_lr") for end in ("min", "max"))
    if low is None or high is None or not is_number(low.value) or not is_number(high.value):
        return
    if low.value > high.value:
        yield Finding(
            f"warm-up falls from {low.value:g} to {high.value:g}",
            (low.label("above the end"), high.label("", primary=False)),
            ("it begins at warmup_min_lr",),
            "write warmup_min_lr: 0",
        )


def _word(document: Document) -> Iterator[Finding]:
    form = document.get(f"{_PARAMS}warmup_type")
    if form is not None and form.value not in ("log", "linear"):
        yield Finding(
            f"DeepSpeed has no warmup_type {form.value}, and takes log",
            (form.label("not taken"),),
            ("it has log and linear; one line of the run's output reports the change",),
            "write linear",
        )


_WARMS: Final = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
_FEWEST: Final = 10
"""The fewest warm-up steps for which the shape is reported."""
_LONG: Final = 500
"""The fewest steps of a warm-up that in effect ends long before its last step."""


@rule("warning", "silent", consumers=("deepspeed",), reads=("deepspeed:scheduler.type",))
def warmup_by_logarithm(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's warm-up is logarithmic, but that of the trainer's schedule is linear."""
    kind, asked = run.said("deepspeed", "scheduler.type"), run.said("trainer", "lr_scheduler_type")
    if kind is None or asked is None or kind.value not in _WARMS:
        return
    if run.said("deepspeed", _PARAMS + "warmup_type") is not None:
        return
    steps = _steps(run)
    if steps is None or steps < _FEWEST:
        return
    at = math.log(max(2.0, steps / 10)) / math.log(steps)
    added = kind.document.added(_PARAMS + "warmup_type", "linear")
    yield Finding(
        f"{kind.value} warms up by a logarithm: {at:.0%} of the rate after a tenth of the steps",
        (kind.label("warmup_type is log"), asked.label("rises linearly", primary=False)),
        (
            (
                f"after {steps / 10:g} of {steps:g} steps the rate is log({steps / 10:g}) / "
                f"log({steps:g}) of its height, where a line is at 10%"
            ),
        ),
        'write "warmup_type": "linear"',
        Fix((added,), "unsafe") if added is not None else None,
        severity=None if steps >= _LONG else "note",
    )


def _steps(run: LintContext) -> float | None:
    """Steps of the warm-up: DeepSpeed's own number, or the number that the trainer fills in."""
    steps = run.effective("deepspeed", _PARAMS + "warmup_num_steps").value
    if is_number(steps):
        return float(steps)
    total = total_steps(run)
    warm = warmup_steps(run, None if total is None else total.value)
    return None if warm is None else float(warm.value)
