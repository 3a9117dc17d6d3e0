"""A batch per device that is split among the devices."""

from collections.abc import Iterator

from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    split = run.said("trainer", "accelerator_config.split_batches", "split_batches")
    batch = run.effective("trainer", "per_device_train_batch_size")
    if split is None or split.value is not True:
        return
    world = run.data_parallel
    if world == 1:
        return
    count = f"all {world} processes" if world else "all processes"
    each = batch.value if is_whole(batch.value) else "the batch size"
    indivisible = bool(world and is_whole(batch.value) and batch.value % world)
    yield Finding(
        f"per_device_train_batch_size {each} is what {count} share, as split_batches is on",
        (
            split.label("splits each batch"),
            *([batch.place.label("", primary=False)] if batch.place else []),
        ),
        (
            f"the batch is no multiple of {world}, and refused"
            if indivisible
            else "steps, warm-up and DeepSpeed's train_batch_size are counted as if each had all",
        ),
        "remove split_batches",
        severity="error" if indivisible else None if world else "warning",
        consequence="init" if indivisible else None,
    )


RULE = Rule(
    name="split-batches-overrides-batch",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `__post_init__`: using "
            "`split_batches=True` will override the `per_device_train_batch_size`"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 data_loader.py `BatchSamplerShard`: ValueError unless the "
            "batch size is a round multiple of the processes"
        ),
    ),
    check=_check,
)
