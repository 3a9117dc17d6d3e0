"""train_batch_size is not micro batch x accumulation x processes."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TOTAL: Final = "train_batch_size"
_MICRO: Final = "train_micro_batch_size_per_gpu"
_STEPS: Final = "gradient_accumulation_steps"


def _check(run: Run) -> Iterator[Finding]:
    total, micro, steps = (run.effective("deepspeed", key) for key in (_TOTAL, _MICRO, _STEPS))
    if total.source not in ("document", "filled") or not (_is_count(total) and _is_count(micro)):
        return
    if steps.source == "default":  # DeepSpeed then derives it: total // micro // world
        yield from _derived(run, total, micro)
    elif _is_count(steps):
        yield from _given(run, total, micro, steps)


def _is_count(value: Effective) -> bool:
    return is_whole(value.value) and value.value > 0


def _given(run: Run, total: Effective, micro: Effective, steps: Effective) -> Iterator[Finding]:
    world = run.data_parallel
    each = micro.value * steps.value
    if world is None:
        if total.value % each:
            yield _finding(run, total, micro, steps, None)
    elif total.value != each * world:
        yield _finding(run, total, micro, steps, world)


def _derived(run: Run, total: Effective, micro: Effective) -> Iterator[Finding]:
    world = run.data_parallel
    if total.value % (micro.value * (world or 1)):
        yield _finding(run, total, micro, None, world)


def _finding(
    run: Run, total: Effective, micro: Effective, steps: Effective | None, world: int | None
) -> Finding:
    factors = [micro, *([steps] if steps else [])]
    product = " x ".join(str(each.value) for each in factors)
    known = f"{product} x {world}" if world else f"{product} x any number of processes"
    terms = [
        Term(_MICRO, micro.value, "samples"),
        *([Term(_STEPS, steps.value, "micro batches")] if steps else []),
    ]
    relation = "is no multiple of" if steps is None or world is None else "is not"
    place = total.place
    fix = None
    if place is not None and steps is not None and world is not None:
        fix = Fix((place.replaced(micro.value * steps.value * world),), "unsafe")
    return Finding(
        f"{_TOTAL} {total.value} {relation} {known}",
        (
            *([place.label("samples in one step")] if place else []),
            *(each.place.label("", primary=False) for each in factors if each.place),
        ),
        (_who(run),) if world else (),
        f"leave {_TOTAL} out: DeepSpeed derives it from the other two",
        fix,
        (*terms, *([Term("data parallel", world, "processes")] if world else [])),
    )


def _who(run: Run) -> str:
    winner = run.world
    return f"processes: {winner.reason}" if winner else ""


RULE = Rule(
    name="batch-product-mismatch",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/config.py `_batch_assertion`",
        "deepspeedai/DeepSpeed#6914",
    ),
    check=_check,
)
