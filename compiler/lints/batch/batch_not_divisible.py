"""train_batch_size alone cannot be shared out evenly among the processes."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    total = run.effective("deepspeed", "train_batch_size")
    steps = run.effective("deepspeed", "gradient_accumulation_steps")
    if not total.is_written or not is_whole(total.value) or total.value < 1 or total.place is None:
        return
    if run.said("deepspeed", "train_micro_batch_size_per_gpu") or run.of("trainer"):
        return
    accumulation = 1 if steps.value is None else steps.value
    world = run.data_parallel
    if world is None or not is_whole(accumulation) or accumulation < 1:
        return
    if total.value % (world * accumulation):
        yield _finding(total.place, total.value, world, accumulation)


def _finding(place: Place, total: int, world: int, accumulation: int) -> Finding:
    each = world * accumulation
    shared = f"{world} processes" + (f" x {accumulation} micro batches" if accumulation > 1 else "")
    micro = total // each
    near = micro * each or each
    came = f"{total} != {micro} x {accumulation} x {world}"
    return Finding(
        f"train_batch_size {total} is "
        + (f"less than {shared}" if micro == 0 else f"no multiple of {shared}"),
        (place.label("samples in one step"),),
        (
            "the micro batch is taken as 0, and refused"
            if micro == 0
            else f"the rest is cut off, and the product then checked: {came}",
            "ZeRO shards states and not the batch: every process takes at least one sample",
        ),
        f"write a multiple of {each}: {near}",
        Fix((place.replaced(near),), "unsafe"),
        (
            Term("data parallel", world, "processes"),
            Term("gradient_accumulation_steps", accumulation, "micro batches"),
        ),
    )


RULE = Rule(
    name="batch-not-divisible",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `_set_batch_related_parameters`: "
            "micro_batch = train_batch // world_size // grad_acc; `_batch_assertion`"
        ),
        "modelscope/ms-swift#4710",
    ),
    check=_check,
)
