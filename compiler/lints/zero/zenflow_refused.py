"""Settings of ZenFlow that DeepSpeed refuses when its engine is made."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

_ZERO: Final = "zero_optimization"
_BLOCK: Final = f"{_ZERO}.zenflow"
_SHARDED: Final = (1, 2, 3)


def _check(run: Run) -> Iterator[Finding]:
    for block in run.each("deepspeed", _BLOCK):
        if isinstance(block.value, dict) and stage_of(run).value in _SHARDED:
            yield from _without_offload(run, block)
            yield from _intervals(block)
            yield from _states_without_overlap(run, block)


def _without_offload(run: Run, block: Place) -> Iterator[Finding]:
    device = run.said("deepspeed", f"{_ZERO}.offload_optimizer.device")
    if run.said("deepspeed", f"{_ZERO}.cpu_offload") is not None:
        return
    if device is not None and device.value not in ("none", None):
        return
    yield Finding(
        "ZenFlow without an optimizer on the host",
        (block.key_label("refused"), *also(device)),
        ("Zenflow must be used with cpu offload",),
        "write offload_optimizer: {device: cpu}, or remove zenflow",
    )


def _intervals(block: Place) -> Iterator[Finding]:
    """What `select_interval` can be is decided by the strategy and by `update_interval`."""
    choice, every, update = (
        block.document.get(f"{block.path}.{name}")
        for name in ("select_strategy", "select_interval", "update_interval")
    )
    strategy = "auto" if choice is None else choice.value
    is_counted = every is not None and type(every.value) is int
    if strategy == "auto" and every is not None and is_counted:
        yield _odd(every, choice, "select_interval is a number, and the strategy is auto", "step")
    elif choice is not None and strategy in ("step", "epoch") and not is_counted:
        where = every or choice
        yield _odd(where, choice, f"strategy {strategy} without a number for select_interval", "")
    elif strategy == "step" and every is not None and update is not None:
        yield from _shorter(every, update)


def _odd(at: Place, beside: Place | None, message: str, wanted: str) -> Finding:
    return Finding(
        message,
        (at.label("refused"), *(also(beside) if beside != at else ())),
        (),
        f"write select_strategy: {wanted}, or select_interval: auto"
        if wanted
        else "write select_interval as a number of steps or epochs",
    )


def _shorter(every: Place, update: Place) -> Iterator[Finding]:
    if not is_number(every.value) or not is_number(update.value):
        return
    if 0 < every.value < update.value:
        yield Finding(
            f"ZenFlow selects every {every.value} steps and updates every {update.value}",
            (every.label("refused"), *also(update)),
            ("Select interval must be greater or equal to update interval",),
            f"write select_interval: {update.value}, or more",
        )


def _states_without_overlap(run: Run, block: Place) -> Iterator[Finding]:
    at = block.document.get(f"{block.path}.offload")
    overlap = run.effective("deepspeed", f"{_ZERO}.overlap_comm")
    default = stage_of(run).value == 3
    is_on = default if overlap.value is None else overlap.value
    if at is None or at.value is not True or is_on is not False:
        return
    yield Finding(
        "zenflow.offload without overlap_comm",
        (at.label("refused"), *also(overlap.place)),
        ("offload selective optimizer should be used with overlap_comm",),
        "write overlap_comm: true, or offload: false",
    )


RULE = Rule(
    name="zenflow-refused",
    severity="error",
    consequence="init",
    consumers=("deepspeed>=0.17.6",),
    sources=(
        "deepspeed 0.17.6 to 0.19.8 runtime/zenflow/engine.py `configure_zenflow`",
        (
            "deepspeed 0.17.6 to 0.19.8 runtime/zenflow/zenflow_stage_1_and_2.py "
            "`_configure_zenflow`: Zenflow must be used with cpu offload; `__init__`, and from "
            "0.18.9 runtime/zenflow/engine_stage3.py: should be used with overlap_comm"
        ),
        (
            "deepspeed 0.19.8 runtime/zero/config.py `overlap_comm`: absent, it is true at stage 3 "
            "and false below"
        ),
    ),
    check=_check,
)
