"""DeepSpeed's scheduler lacks a parameter that it cannot do without."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

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
"""deepspeed 0.19.8 runtime/lr_schedules.py, torch 2.13.0 optim/lr_scheduler.py: parameters of
`__init__` without a default."""


_PARAMETERLESS: Final = frozenset({"WarmupLR", "LRRangeTest"})
"""Schedulers that need no parameter, and yet the mapping of them."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        kind = document.get("scheduler.type")
        if kind is None or not isinstance(kind.value, str):
            continue
        given = document.value("scheduler.params")
        if given is None and kind.value in _PARAMETERLESS:
            yield _without_params(kind)
        names = given if isinstance(given, dict) else {}
        absent = [key for key in _NEEDS.get(kind.value, ()) if key not in names]
        if absent:
            yield Finding(
                f"{kind.value} without {quoted(absent, 'and')}",
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
        f"{kind.value} without params",
        (kind.label("needs them"),),
        ("TypeError when the engine is built: what is unpacked has to be a mapping",),
        'write "params": {}, or the parameters',
    )


RULE = Rule(
    name="deepspeed-scheduler-incomplete",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_scheduler_from_config`: "
            "scheduler(optimizer, **scheduler_params); runtime/lr_schedules.py `WarmupDecayLR`"
        ),
    ),
    check=_check,
)
