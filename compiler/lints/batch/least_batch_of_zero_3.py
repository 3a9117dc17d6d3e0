"""One sample a process at ZeRO-3: the batch is as small as it gets, and not one sample."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import trainer_batch
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    stage = run.effective("deepspeed", "zero_optimization.stage")
    batch, world, total = trainer_batch(run), run.data_parallel, run.value("parallel.world")
    if stage.value != 3 or batch is None or world is None or world < 2 or world != total:
        return
    micro, steps = batch
    if micro.value != 1 or steps.value != 1 or micro.place is None:
        return
    yield Finding(
        f"one step takes {world} samples: 1 on each of {world} processes",
        (
            micro.place.label("on each process"),
            *([stage.place.label("", primary=False)] if stage.place else []),
        ),
        (
            (
                "ZeRO-3 shards parameters, gradients and states; every process still works on "
                "whole samples of its own, with all their activations"
            ),
        ),
        "to lay one sample over several devices use tensor or sequence parallelism",
        sum=(Term("micro batch", 1, "samples"), Term("data parallel", world, "processes")),
    )


RULE = Rule(
    name="least-batch-of-zero-3",
    severity="note",
    consequence="out-of-memory",
    consumers=("deepspeed",),
    sources=(
        "modelscope/ms-swift#4710",
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `_set_batch_related_parameters`: "
            "train_batch_size = micro_batch * grad_acc * world_size at every stage"
        ),
    ),
    check=_check,
)
