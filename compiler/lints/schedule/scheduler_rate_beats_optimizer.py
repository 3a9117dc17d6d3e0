"""A scheduler of DeepSpeed's that leads to another rate than the optimizer's."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_DEFAULT: Final = 0.001
_PARAMS: Final = "scheduler.params."
_KINDS: Final = ("WarmupLR", "WarmupDecayLR")
_LATER: Final = "from deepspeed 0.17.6 on WarmupLR leads to the optimizer's own: write it for both"


def _check(run: Run) -> Iterator[Finding]:
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
        found = _finding(rate, top or kind, reached, is_written=top is not None)
        is_open = top is None and is_own is None
        yield replace(found, notes=(*found.notes, _LATER)) if is_open else found


def _finding(rate: Place, top: Place, reached: float, *, is_written: bool) -> Finding:
    return Finding(
        f"the scheduler leads to {reached:g}, and the optimizer's lr {rate.value:g} is not used",
        (rate.label("not used"), top.label("" if is_written else "leads to it", primary=False)),
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
            f"warmup_type {form.value} is replaced by log",
            (form.label("not taken"),),
            ("taken: log, linear; a line of the log says so",),
            "write linear",
        )


RULE = Rule(
    name="scheduler-rate-beats-optimizer",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/lr_schedules.py `WarmupLR.get_lr`: min_lrs + "
            "delta_lrs * gamma; warmup_max_lr is 0.001 by default, in WarmupLR the optimizer's own "
            "from 0.17.6 on; Using unknown warmup_type"
        ),
        "deepspeedai/DeepSpeed#7303",
    ),
    check=_check,
)
