"""Warm-up."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.facts.sharding import stage_of
from tunec.compiler.lints.facts.training_loop import (
    is_number,
    is_overridden,
    is_positive,
    is_whole,
    total_steps,
    warmup_place,
    warmup_steps,
)
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.frozen import replace

_WARMS: Final = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
_PARAMS: Final = "scheduler.params."
_FEWEST: Final = 10
"""Steps of a warm-up whose shape is worth a word."""


@rule(
    "warmup-by-logarithm",
    "warning",
    "silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/lr_schedules.py `WarmupLR._get_gamma`: log(step + "
            "1) / log(warmup_num_steps); warmup_type is log by default in WarmupLR, WarmupDecayLR "
            "and WarmupCosineLR"
        ),
        "transformers 4.40.2 to 5.23.0 optimization.py: step / num_warmup_steps",
    ),
    reads=("deepspeed:scheduler.type",),
)
def warmup_by_logarithm(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's warm-up rises by a logarithm where the trainer's schedule rises in a line."""
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
        (kind.label("warmup_type is log"), asked.label("rises in a line", primary=False)),
        (
            (
                f"after {steps / 10:g} of {steps:g} steps the rate is log({steps / 10:g}) / "
                f"log({steps:g}) of its height, where a line is at 10%"
            ),
        ),
        'write "warmup_type": "linear"',
        Fix((added,), "unsafe") if added is not None else None,
    )


def _steps(run: LintContext) -> float | None:
    """Steps of the warm-up: DeepSpeed's own number, or what the trainer fills in for it."""
    steps = run.effective("deepspeed", _PARAMS + "warmup_num_steps").value
    if is_number(steps):
        return float(steps)
    total = total_steps(run)
    warm = warmup_steps(run, None if total is None else total.value)
    return None if warm is None else float(warm.value)


@rule(
    "warmup-given-twice",
    "warning",
    "silent",
    consumers=("transformers<5.15",),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 training_args.py `get_warmup_steps`: steps above 0 win; "
            "5.0.0 and 5.6.2 `__post_init__`: warmup_steps = warmup_ratio; 5.15.1 has no "
            "warmup_ratio"
        ),
    ),
    reads=("trainer:warmup_ratio",),
)
def warmup_given_twice(run: LintContext) -> Iterator[Finding]:
    """Warm-up is given as steps and as a share."""
    for document in run.of("trainer"):
        steps, share = document.get("warmup_steps"), document.get("warmup_ratio")
        if steps is None or share is None or document.is_view:
            continue  # Axolotl's own check refuses the pair
        if is_positive(steps.value) and is_positive(share.value):
            last = run.runs("transformers>=5.0")
            used, unused = (share, steps) if last else (steps, share)
            yield Finding(
                f"warmup_ratio {share.value} beside warmup_steps {steps.value}",
                (unused.label("not used"), used.label("decides", primary=False)),
                (
                    "from 5.0 on the share overwrites the steps"
                    if last
                    else "before 5.0 steps win, and a line of the log says so",
                ),
                f"remove {unused.path}",
                Fix((unused.removed(),), "safe" if last is not None else "unsafe"),
            )


_COSINE: Final = "WarmupCosineLR"
_DIVIDED: Final[Mapping[str, Any]] = {
    "notes": ("ZeroDivisionError in the first step behind the warm-up: it divides by the rest",),
    "severity": None,
    "consequence": "step",
}


@rule(
    "warmup-longer-than-training",
    "error",
    "silent",
    consumers=("transformers", "deepspeed"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 optimization.py "
            "`_get_linear_schedule_with_warmup_lr_lambda`: current_step / num_warmup_steps while "
            "below it"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/lr_schedules.py `WarmupDecayLR.__init__`: a "
            "warning, total_num_steps is less than warmup_num_steps"
        ),
        (
            "deepspeed 0.14.5 to 0.18.9 runtime/lr_schedules.py `WarmupCosineLR.get_lr_ratio`: / "
            "(total_num_steps - warmup_num_steps); 0.19.8: max(1, ...); deepspeedai/DeepSpeed#8142"
        ),
    ),
    reads=(
        *keys("trainer", "warmup_steps", "warmup_ratio"),
        "deepspeed:scheduler.params.warmup_num_steps",
    ),
)
def warmup_longer_than_training(run: LintContext) -> Iterator[Finding]:
    """Warm-up does not end before training does."""
    total = total_steps(run)
    warm = warmup_steps(run, total.value if total else None)
    if total and warm and warm.value >= total.value and not is_overridden(run):
        yield _finding(warm.place, warm.value, total.place, total.value)
    params = "scheduler.params."
    first = run.effective("deepspeed", f"{params}warmup_num_steps")
    last = run.effective("deepspeed", f"{params}total_num_steps")
    if not is_whole(first.value) or not is_whole(last.value) or first.value < last.value:
        return
    if first.place and last.place:
        found = _finding(first.place, first.value, last.place, last.value)
        is_zero = first.value == last.value and run.runs("deepspeed<0.19") is True
        is_cosine = run.effective("deepspeed", "scheduler.type").value == _COSINE
        yield replace(found, **_DIVIDED) if is_cosine and is_zero else found


def _finding(first: Place, warm: int, last: Place, total: int) -> Finding:
    return Finding(
        f"{warm} steps of warm-up in {total} steps of training",
        (first.label("steps of rising rate"), last.label("all steps", primary=False)),
        (f"the rate never falls; its highest value comes at step {warm} or not at all",),
        f"write {max(total * 3 // 100, 1)}, which is 3 % of all steps",
        sum=(Term("warm-up", warm, "steps"), Term("training", total, "steps")),
        severity="warning",
    )


_NONE: Final = ("constant", "reduce_lr_on_plateau", "greedy")


@rule(
    "warmup-of-a-constant-rate",
    "error",
    "silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 optimization.py `get_scheduler`: SchedulerType.CONSTANT "
            "and REDUCE_ON_PLATEAU are built without num_warmup_steps"
        ),
    ),
    reads=keys("trainer", "warmup_steps", "warmup_ratio"),
)
def warmup_of_a_constant_rate(run: LintContext) -> Iterator[Finding]:
    """Warm-up of a schedule that has none."""
    kind, warm = run.said("trainer", "lr_scheduler_type"), warmup_place(run)
    if kind is None or warm is None or kind.value not in _NONE or is_overridden(run):
        return
    fix = Fix((kind.replaced("constant_with_warmup"),), "unsafe")
    yield Finding(
        f"{warm.path} {warm.value} does nothing: {kind.value} has no warm-up",
        (warm.label("does nothing"), kind.label("", primary=False)),
        ("the rate is at its full height from the first step",),
        "write constant_with_warmup" if kind.value == "constant" else f"remove {warm.path}",
        fix if kind.value == "constant" else None,
    )


@rule(
    "scheduler-without-decay",
    "warning",
    "silent",
    consumers=("deepspeed", "transformers"),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/lr_schedules.py `WarmupLR`: and then fix at max lr",
        "transformers 5.23.0 integrations/deepspeed.py `deepspeed_optim_sched`",
        "hiyouga/LlamaFactory#3100",
    ),
    reads=("deepspeed:scheduler.type",),
)
def scheduler_without_decay(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's WarmupLR beside a trainer that would let the rate fall."""
    kind = run.said("deepspeed", "scheduler.type")
    asked = run.effective("trainer", "lr_scheduler_type")
    if kind is None or kind.value != "WarmupLR" or asked.source != "default":
        return
    yield Finding(
        f"WarmupLR never lets the rate fall; the trainer's own schedule is {asked.value}",
        (kind.label("used"),),
        (
            "after warm-up the rate stays at warmup_max_lr to the end",
            f"lr_scheduler_type is left out: {asked.by} is {asked.value}",
        ),
        "remove the scheduler, or write WarmupDecayLR with total_num_steps",
    )


_SECTIONS: Final = {
    "optimizer": "no optimizer is built from it, and its numbers are not read",
    "scheduler": "no scheduler is built from it, and the rate stays as it is",
}
_STAND_INS: Final = {
    "optimizer": "the trainer counts the section as one and leaves it to DeepSpeed: none is built",
    "scheduler": "the trainer counts the section as one, and its DummyScheduler has no step()",
}
"""Where the Trainer reads the file: a section is one, whatever it holds."""


@rule(
    "section-without-type",
    "error",
    "silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `get_optimizer_name`, "
            "`get_scheduler_name`: None without TYPE, and then no params; runtime/engine.py "
            "`_configure_zero_optimizer`: zero stage 2 requires an optimizer"
        ),
        (
            "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `deepspeed_optim_sched`: "
            "DummyOptim and DummyScheduler where the section is there; accelerate 0.30.1 to 1.15.0 "
            "accelerator.py `_prepare_deepspeed`: AcceleratedScheduler of it where DeepSpeed "
            "returns none; zjunlp/KnowLM#30"
        ),
    ),
    reads=keys("deepspeed", "scheduler", "optimizer"),
)
def section_without_type(run: LintContext) -> Iterator[Finding]:
    """An optimizer or a scheduler section in ds_config.json that does not name one."""
    for document in run.of("deepspeed"):
        for name, why in _SECTIONS.items():
            section = document.get(name)
            if section is None or not section.node.fields or document.get(f"{name}.type"):
                continue
            is_dummy = run.deepspeed_reader == "trainer"
            is_part = document.get(f"{name}.params") is not None  # its type may only be left out
            yield Finding(
                f"`{name}` has no type: it does nothing",
                (section.key_label("not used"),),
                (why, *((_STAND_INS[name],) if is_dummy else ())),
                f'add "type": "{"AdamW" if name == "optimizer" else "WarmupLR"}"',
                severity=None if is_dummy and not is_part else "warning",
                consequence=_when(run, name) if is_dummy else None,
            )


def _when(run: LintContext, name: str) -> Consequence:
    """ZeRO below stage 3 asks for an optimizer at once; the rest is missed in the first step."""
    is_asked = name == "optimizer" and stage_of(run).value in (1, 2)
    return "init" if is_asked else "step"
